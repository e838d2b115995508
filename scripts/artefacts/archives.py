"""Archives whose bytes depend on their content alone: fixed owners and times, entries by name."""

import gzip
import io
import lzma
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A file, folder or link of an archive."""

    name: str
    # A file's content: bytes, or the path of a file.
    content: bytes | Path | None = None
    mode: int = 0o644
    link: str = ""


def tar(stream, entries, epoch):
    """Writes the entries in order of their names."""
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in sorted(entries, key=lambda entry: entry.name):
            info = tarfile.TarInfo(entry.name)
            info.mtime = epoch
            info.mode = entry.mode
            if entry.link:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
                archive.addfile(info)
            elif entry.content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            elif isinstance(entry.content, bytes):
                info.size = len(entry.content)
                archive.addfile(info, io.BytesIO(entry.content))
            else:
                info.size = entry.content.stat().st_size
                with open(entry.content, "rb") as content:
                    archive.addfile(info, content)


def tar_gz(path, entries, epoch):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as out:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as packed:
            tar(packed, entries, epoch)


def tar_xz(path, entries, epoch):
    with lzma.open(path, "wb", preset=6) as packed:
        tar(packed, entries, epoch)


def with_folders(entries):
    """The entries, whose names begin with `./`, and the folders that they are in: dpkg unpacks a folder before its files."""
    folders = {f"./{parent}" if parent.name else "." for entry in entries for parent in Path(entry.name).parents}
    return [*(Entry(folder, mode=0o755) for folder in folders), *entries]


def ar(path, members, epoch):
    """Writes files as an `ar` archive, in the given order."""
    with open(path, "wb") as out:
        out.write(b"!<arch>\n")
        for member in members:
            size = member.stat().st_size
            header = f"{member.name:<16}{epoch:<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n"
            out.write(header.encode())
            with open(member, "rb") as stream:
                shutil.copyfileobj(stream, out, 1 << 20)
            if size % 2:
                out.write(b"\n")
