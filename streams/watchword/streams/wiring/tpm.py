"""What `tpm` is told, from its settings and the folder that they name."""

from collections.abc import Collection

from watchword.handlers.attestors.tpm.config import Config, WaitingRoom
from watchword.handlers.attestors.tpm.endorsement import Anchors, load_anchors
from watchword.handlers.kinds import known_kind
from watchword.schemas.ids import TenantId
from watchword.streams.settings.policies import TpmSettings


def tpm_config(section: TpmSettings, registered: Collection[str], problems: list[str]) -> Config:
    """Return the attestor's configuration; whatever is wrong is added to `problems`, all of it."""
    room = section.waiting_room
    if room is None:
        return Config(_anchors(section, problems))
    problems += [
        f"attestors.tpm.waiting_room.kinds: no such kind: {kind}"
        for kind in room.kinds
        if not known_kind(kind, registered)
    ]
    anchors = _anchors(section, problems)
    if not anchors.by_subject:
        problems.append(
            "attestors.tpm.anchors_folder: a waiting room needs CAs to tell a genuine TPM"
        )
    return Config(anchors, WaitingRoom(TenantId(room.tenant), room.pool, room.site, room.kinds))


def _anchors(section: TpmSettings, problems: list[str]) -> Anchors:
    folder = section.anchors_folder
    if folder is None:
        return Anchors({})
    try:
        return load_anchors(folder)
    except OSError as error:
        said = error.strerror or "cannot be read"
        problems.append(f"attestors.tpm.anchors_folder: {folder}: {said}")
        return Anchors({})
