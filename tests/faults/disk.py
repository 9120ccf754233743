# SPDX-License-Identifier: Apache-2.0
"""What a disk holds after a power loss: the record of the preloaded library (fault_plan.h), cut, under a pessimistic model.

- The content of a file is safe up to its last fsync. Of later writes all, none, or the last one in half may be there; where
  the size got there and the bytes did not, they are zeros.
- A name (created, renamed, linked, removed) is safe from the next fsync of its folder on. Of later changes in a folder
  all, none, the first or the last may be there.
- Folders that the program made are there.

POSIX allows this. Journaling file systems lose less.
"""
import dataclasses
import os

OPERATIONS = ("create", "write", "truncate", "sync", "rename", "link", "unlink", "mkdir")


@dataclasses.dataclass
class Operation:
    kind: str
    inode: int
    path: str
    other: str
    offset: int
    data: bytes


def read_record(path):
    """The operations of a record, in order."""
    operations = []
    with open(path, "rb") as file:
        while line := file.readline():
            kind, inode, name, other, offset, size = line.decode().rstrip("\n").split("\t")
            data = file.read(int(size))
            assert kind in OPERATIONS and len(data) == int(size), line
            operations.append(Operation(kind, int(inode), name, other, int(offset), data))
    return operations


class File:
    """One inode: its safe content, and the changes since."""

    def __init__(self, content=b""):
        self.safe = content
        self.unsafe = []

    def content(self, how):
        """how: "all", "none", "torn" (half of the last write) or "zeros" (the size alone)."""
        changes = self.unsafe if how != "none" else []
        content = bytearray(self.safe)
        for number, (offset, data) in enumerate(changes):
            if data is None:
                del content[offset:]
                content.extend(bytes(offset - len(content)))
                continue
            if how == "zeros":
                data = bytes(len(data))
            elif how == "torn" and number == len(changes) - 1:
                data = data[:len(data) // 2] + bytes(len(data) - len(data) // 2)
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset:offset + len(data)] = data
        return bytes(content)


class Disk:
    """Files below a root, from what is there before the program starts."""

    def __init__(self, root):
        self.safe_names, self.folders, self.by_inode = {}, set(), {}
        self.unsafe_names = []  # (folder, changes): path to File, or None for a name that goes
        for folder, folders, files in os.walk(root):
            self.folders.update(os.path.relpath(os.path.join(folder, name), root) for name in folders)
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    self.safe_names[os.path.relpath(path, root)] = File(file.read())
                self.by_inode[os.stat(path).st_ino] = self.safe_names[os.path.relpath(path, root)]

    def names(self, chosen=None):
        """path: File, with all changes of names or only the chosen ones."""
        names = dict(self.safe_names)
        for _, changes in self.unsafe_names if chosen is None else chosen:
            for path, file in changes.items():
                names.pop(path, None)
                if file is not None:
                    names[path] = file
        return names

    def apply(self, operation):
        path, other = operation.path, operation.other
        if operation.kind == "mkdir":
            self.folders.add(path)
        elif operation.kind == "create":
            file = self.by_inode[operation.inode] = File()
            self._change(path, {path: file})
        elif operation.kind == "write":
            self.by_inode[operation.inode].unsafe.append((operation.offset, operation.data))
        elif operation.kind == "truncate":
            self.by_inode[operation.inode].unsafe.append((operation.offset, None))
        elif operation.kind == "sync" and (path in self.folders or path == "."):
            kept = []
            for folder, changes in self.unsafe_names:
                if folder != path:
                    kept.append((folder, changes))
                    continue
                for name, file in changes.items():
                    self.safe_names.pop(name, None)
                    if file is not None:
                        self.safe_names[name] = file
            self.unsafe_names = kept
        elif operation.kind == "sync":
            file = self.by_inode[operation.inode]
            file.safe, file.unsafe = file.content("all"), []
        elif operation.kind == "rename":
            self._change(path, {path: None, other: self.names()[path]})
        elif operation.kind == "link":
            self._change(path, {other: self.names()[path]})
        elif operation.kind == "unlink":
            self._change(path, {path: None})

    def _change(self, path, changes):
        self.unsafe_names.append((os.path.dirname(path) or ".", changes))

    def states(self):
        """Every state that the disk may be in now, as {path: content}, without repetition, by a name for it."""
        unsafe = self.unsafe_names
        choices = {"all names": unsafe, "no names": [], "first name": unsafe[:1], "last name": unsafe[-1:]}
        found = {}
        for name, chosen in choices.items():
            for how in ("all", "none", "torn", "zeros"):
                state = {path: file.content(how) for path, file in self.names(chosen).items()}
                if state not in found.values():
                    found[f"{name}, {how} of the unsynced data"] = state
        return found


def lay_out(state, folders, root):
    """Makes the folders and {path: content} below a new root."""
    os.makedirs(root)
    for folder in sorted(folders):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    for path, content in state.items():
        with open(os.path.join(root, path), "wb") as file:
            file.write(content)
