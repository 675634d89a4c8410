"""What `cloud-iid` is told, from its settings and the folder that they name."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.config import AwsConfig, AzureConfig, Config, GcpConfig
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.errors import ConfigRefused
from watchword.streams.settings import Settings
from watchword.streams.settings.cloud import CloudIidSettings
from watchword.streams.worker.cloud_anchors import CloudAnchors, KeySource

_ID = "attestors.cloud-iid"


def cloud_iid_attestor(section: CloudIidSettings, problems: list[str]) -> CloudIidAttestor:
    """Return the attestor; whatever is wrong is added to `problems`, all of it."""
    return CloudIidAttestor(_anchors(section, problems), cloud_iid_config(section))


def cloud_iid_config(section: CloudIidSettings) -> Config:
    """Return how the clouds' word is taken."""
    aws, gcp, azure = section.aws, section.gcp, section.azure
    return Config(
        aws=AwsConfig(
            max_age=timedelta(seconds=aws.max_age_s),
            leeway=timedelta(seconds=aws.leeway_s),
            unsafe_dsa=aws.unsafe_dsa,
        ),
        gcp=GcpConfig(
            audience=gcp.audience,
            max_life=timedelta(seconds=gcp.max_life_s),
            leeway=timedelta(seconds=gcp.leeway_s),
        ),
        azure=AzureConfig(
            names=tuple(azure.names.items()),
            max_life=timedelta(seconds=azure.max_life_s),
            leeway=timedelta(seconds=azure.leeway_s),
            nonce=azure.nonce,
        ),
    )


@asynccontextmanager
async def tending(
    settings: Settings, attestors: Iterable[object]
) -> AsyncGenerator[Callable[[], str | None]]:
    """Keep the clouds' anchors fresh inside the block, if there is this attestor; yield why it cannot judge yet."""
    found = next((a for a in attestors if isinstance(a, CloudIidAttestor)), None)
    section = settings.attestors.cloud_iid or CloudIidSettings()
    if found is None:
        yield lambda: None
        return
    source = KeySource(section.gcp.jwks_urls, float(section.gcp.jwks_refresh_s))
    anchors = CloudAnchors(found.anchors, look_s=section.reload_s, keys=source)
    async with anchors.kept():
        yield anchors.problem


def _anchors(section: CloudIidSettings, problems: list[str]) -> AnchorFolder:
    folder, urls = section.anchors_folder, section.gcp.jwks_urls
    if folder is None:
        if not urls:
            problems.append(
                f"{_ID}.anchors_folder: not set, and no gcp.jwks_urls: nobody could join"
            )
        return AnchorFolder(None)
    try:
        anchors = AnchorFolder(folder, expired=section.expired)
    except ConfigRefused as error:
        problems += [f"{_ID}.anchors_folder: {folder}: {said}" for said in error.problems]
        return AnchorFolder(None)
    if not (anchors.current.anchors or anchors.google_keys or urls):
        problems.append(f"{_ID}.anchors_folder: {folder}: not one anchor that can be used")
    return anchors
