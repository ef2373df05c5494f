"""A program that changes its folder in every way it knows, and reads back what it did. Words: kinds to leave out."""

import csv
import ctypes
import json
import logging
import mmap
import multiprocessing
import os
import pathlib
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import zipfile


def same(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r}, not {expected!r}")


def text(path):
    with open(path) as file:
        return file.read()


def opened():
    with open("best.pt", "w") as file:
        file.write("zeros")
    same(text("best.pt"), "zeros")


def appended():
    with open("log.txt", "a") as file:
        same(file.name, "log.txt")
        file.write("more")
    same(text("log.txt"), "before more")


def updated():
    with open("data.bin", "r+b") as file:
        file.seek(2)
        file.write(b"XY")
    same(pathlib.Path("data.bin").read_bytes(), b"01XY456789")


def created():
    with open("new.txt", "x") as file:
        file.write("1")
    try:
        open("new.txt", "x")
    except FileExistsError as error:
        same(error.filename, "new.txt")
    same("new.txt" in os.listdir(), True)


def by_descriptor():
    number = os.open("raw", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    os.write(number, b"raw")
    os.close(number)
    same(text("raw"), "raw")
    same(os.stat("raw").st_mode & 0o777, 0o600)


def by_pathlib():
    folder = pathlib.Path("runs/deep/er")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a").write_text("a")
    (folder / "b").touch()
    same(sorted(path.name for path in folder.iterdir()), ["a", "b"])
    same(sorted(map(str, pathlib.Path("runs").rglob("a"))), ["runs/deep/er/a"])
    (folder / "a").rename(folder / "c")
    (folder / "b").unlink()
    same([entry.name for entry in os.scandir(folder)], ["c"])


def removed():
    os.remove("old.txt")
    same(os.path.exists("old.txt"), False)
    same("old.txt" in os.listdir("."), False)
    try:
        open("old.txt")
    except FileNotFoundError as error:
        same(error.filename, "old.txt")


def renamed():
    os.rename("first", "second")
    same(os.path.exists("first"), False)
    same(text("second"), "first")
    os.replace("second", "log2.txt")
    same(text("log2.txt"), "first")


def renamed_folder():
    os.rename("folder", "moved")
    same(os.listdir("moved"), ["inner"])
    same(text("moved/inner"), "inner")
    os.mkdir("folder")
    same(os.listdir("folder"), [])


def by_shutil():
    shutil.copytree("tree", "copy")
    shutil.copy("data.bin", "copy/data.bin")
    shutil.move("copy", "elsewhere_")
    same(sorted(os.listdir("elsewhere_")), ["data.bin", "leaf", "sub"])
    shutil.rmtree("tree")
    same(os.path.isdir("tree"), False)
    os.makedirs("tree/new")
    same(list(os.walk("tree")), [("tree", ["new"], []), ("tree/new", [], [])])


def attributes():
    os.chmod("mode.txt", 0o600)
    os.truncate("mode.txt", 3)
    os.utime("mode.txt", (1, 1))
    found = os.stat("mode.txt")
    same((found.st_mode & 0o777, found.st_mtime, found.st_size), (0o600, 1.0, 3))


def links():
    with open("link/through", "w") as file:
        file.write("through")
    same(text("linked/through"), "through")
    os.symlink("best.pt", "soft")
    os.link("data.bin", "hard")
    same((os.readlink("soft"), os.path.islink("soft"), os.path.exists("hard")), ("best.pt", True, True))


def working_folder():
    os.makedirs("place")
    here = os.getcwd()
    os.chdir("place")
    same(os.getcwd(), os.path.join(here, "place"))
    with open("inside", "w") as file:
        file.write("inside")
    os.chdir("..")
    same(text("place/inside"), "inside")


def by_sqlite():
    with sqlite3.connect("study.db") as database:
        database.execute("create table runs (id integer)")
        database.execute("insert into runs values (7)")
    database.close()
    with sqlite3.connect("file:study.db?mode=ro", uri=True) as database:
        same(database.execute("select id from runs").fetchall(), [(7,)])
    database.close()
    with sqlite3.connect("known.db") as database:
        database.execute("delete from runs")
    database.close()


def by_numpy():
    import numpy

    array = numpy.arange(4.0)
    numpy.save("a.npy", array)
    numpy.savez("a.npz", array=array)
    array.tofile("a.raw")
    numpy.savetxt("a.txt", array)
    same(numpy.load("a.npy").tolist(), array.tolist())
    mapped = numpy.memmap("m.dat", dtype="float64", mode="w+", shape=(4,))
    mapped[:] = array
    mapped.flush()
    same(numpy.fromfile("m.dat").tolist(), array.tolist())


def by_modules():
    with open("t.json", "w") as file:
        json.dump({"a": 1}, file)
    with open("t.csv", "w", newline="") as file:
        csv.writer(file).writerow([1, 2])
    with open("t.pickle", "wb") as file:
        pickle.dump([1], file)
    with zipfile.ZipFile("t.zip", "w") as archive:
        archive.writestr("in", "zip")
    with tarfile.open("t.tar", "w") as archive:
        archive.add("t.json")
    handler = logging.FileHandler("t.log")
    handler.emit(logging.makeLogRecord({"msg": "said"}))
    handler.close()
    same(
        (text("t.log"), zipfile.ZipFile("t.zip").read("in"), tarfile.open("t.tar").getnames()),
        ("said\n", b"zip", ["t.json"]),
    )


def by_tempfile():
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
        file.write("t")
    same(text(file.name), "t")
    with tempfile.NamedTemporaryFile("w", dir=".") as file:
        same(os.path.exists(file.name), True)
    same(os.path.exists(file.name), False)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "t").write_text("t")
        same(os.listdir(folder), ["t"])


def mapped():
    with open("map.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0:1] = b"Z"
        memory.flush()
    same(text("map.bin"), "Zap")


def imported():
    pathlib.Path("made_here.py").write_text("VALUE = 5\n")
    sys.path.insert(0, os.getcwd())
    import made_here

    same(made_here.VALUE, 5)


def forked():
    child = os.fork()
    if child == 0:
        with open("forked", "w") as file:
            file.write("child")
        os._exit(0)
    os.waitpid(child, 0)
    same(text("forked"), "child")


def _spawned():
    with open("spawned", "w") as file:
        file.write("child")


def spawned():
    process = multiprocessing.get_context("spawn").Process(target=_spawned)
    process.start()
    process.join()
    same((process.exitcode, text("spawned")), (0, "child"))


def python_started():
    subprocess.run([sys.executable, "-c", "open('started.txt', 'w').write('python')"], check=True)
    same(text("started.txt"), "python")


def shell():
    subprocess.run(
        "echo shell > shell.txt; rm -f old2.txt; mkdir shelled; mv first2 shelled/", shell=True, check=True
    )
    same(os.system("echo more >> shell.txt"), 0)
    same(text("shell.txt"), "shell\nmore\n")


def c_library():
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(b"c.txt", b"w"))
    libc.fputs(b"from C", file)
    libc.fclose(file)
    same(libc.unlink(b"old3.txt"), 0)
    same(text("c.txt"), "from C")


KINDS = (
    opened, appended, updated, created, by_descriptor, by_pathlib, removed, renamed, renamed_folder, by_shutil, attributes, links,
    working_folder, by_sqlite, by_numpy, by_modules, by_tempfile, mapped, imported, forked, spawned, python_started, shell, c_library,
)  # fmt: skip

if __name__ == "__main__":
    for kind in KINDS:
        if kind.__name__ not in sys.argv[1:]:
            kind()
    print("all written")
