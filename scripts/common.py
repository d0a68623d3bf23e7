"""What the checks share: the repository's own files, and C++ text without comments and strings."""

import pathlib
import re
import subprocess

_CODE_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)
_DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")


def source_files(root: pathlib.Path, suffixes: tuple[str, ...]) -> list[pathlib.Path]:
    """Files of these endings that are tracked, or new and not ignored; every file where there is no git."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = [root / name for name in listed.stdout.split("\0") if name]
    else:
        paths = list(root.rglob("*"))
    return sorted(p for p in set(paths) if p.name.endswith(suffixes) and p.is_file())


def without_comments_and_strings(text: str) -> str:
    """The same text, same length in lines, with comments and the insides of literals blanked."""
    def blank(match: re.Match) -> str:
        return re.sub(r"[^\n]", " ", match.group())
    return _CODE_NOISE.sub(blank, _DIGIT_SEPARATOR.sub(" ", text))
