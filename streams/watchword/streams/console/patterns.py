"""What text that is given has to look like: as a pattern, and in the words of an answer."""

from typing import Final

SHA256: Final = r"^[0-9a-f]{64}$"
PUBLIC_ID: Final = r"^[a-z0-9]{16}$"
ONE_LINE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"

IN_WORDS: Final = {
    SHA256: "has to be 64 hexadecimal digits, 0-9 and a-f",
    PUBLIC_ID: "has to be 16 letters a-z or digits",
    ONE_LINE: "has to be one line, without control characters",
}
