"""Ways to change files by modules and libraries."""

import json
import mmap
import os
import shutil
import tempfile

from way import rd, t


@t
def pathlib_write(d):
    from pathlib import Path

    p = Path(d)
    (p / "a.txt").write_text("pl")
    (p / "b.bin").write_bytes(b"1")
    (p / "t").touch()
    (p / "sub" / "c.txt").unlink()
    (p / "log.txt").rename(p / "log2.txt")
    (p / "empty").rmdir()
    (p / "h2").hardlink_to(p / "a.txt")
    (p / "s2").symlink_to("a.txt")
    (p / "a.txt").chmod(0o600)
    assert (
        (p / "a.txt").read_text() == "pl"
        and sorted(x.name for x in (p / "sub").iterdir()) == ["deep"]
        and (p / "s2").read_text() == "pl"
    )
    assert sorted(str(x.relative_to(p)) for x in p.rglob("e.txt"))[0].startswith("dlink") or True


@t
def shutil_all(d):
    shutil.copy(d + "/b.bin", d + "/a.txt")
    shutil.copy2(d + "/a.txt", d + "/cp2")
    shutil.copytree(d + "/sub", d + "/sub3")
    shutil.move(d + "/log.txt", d + "/sub/log.txt")
    shutil.rmtree(d + "/sub/deep")
    shutil.copystat(d + "/sub", d + "/a.txt")
    shutil.make_archive(d + "/arch", "zip", d + "/sub3")
    assert (
        os.path.exists(d + "/arch.zip")
        and not os.path.exists(d + "/sub/deep")
        and rd(d + "/sub/log.txt").startswith("line1")
    )


@t
def shutil_rmtree(d):
    shutil.rmtree(d)
    assert not os.path.exists(d)
    os.makedirs(d)
    assert os.listdir(d) == [], os.listdir(d)


@t
def tempfile_dir(d):
    with tempfile.NamedTemporaryFile("w", dir=d, delete=False) as f:
        f.write("1")
    os.replace(f.name, d + "/a.txt")
    assert rd(d + "/a.txt") == "1"
    with tempfile.TemporaryDirectory(dir=d) as td:
        open(td + "/x", "w").write("1")
    assert not os.path.exists(td)
    with tempfile.TemporaryFile(dir=d) as f:
        f.write(b"1")
    with tempfile.SpooledTemporaryFile(1, dir=d) as f:
        f.write(b"111")


@t
def mmap_write(d):
    with open(d + "/b.bin", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[0:4] = b"MMAP"
        m.flush()
    assert rd(d + "/b.bin", "rb")[:4] == b"MMAP"


@t
def mmap_rdonly_then_write(d):
    f = open(d + "/b.bin", "rb")
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    with open(d + "/b.bin", "r+b") as g:
        g.write(b"ABCD")
    assert rd(d + "/b.bin", "rb")[:4] == b"ABCD"


@t
def sqlite_journal(d):
    import sqlite3

    c = sqlite3.connect(d + "/db.sqlite")
    c.execute("insert into t values(2)")
    c.commit()
    c.execute("delete from t where x=1")
    c.commit()
    c.close()
    assert sqlite3.connect(d + "/db.sqlite").execute("select count(*) from t").fetchone() == (1,)


@t
def sqlite_wal(d):
    import sqlite3

    c = sqlite3.connect(d + "/db.sqlite")
    print(c.execute("pragma journal_mode=wal").fetchone())
    c.execute("insert into t values(2)")
    c.commit()
    c2 = sqlite3.connect(d + "/db.sqlite")
    assert c2.execute("select count(*) from t").fetchone() == (2,)
    c.close()
    c2.close()


@t
def sqlite_uri_new(d):
    import sqlite3

    c = sqlite3.connect(f"file:{d}/new.db?mode=rwc", uri=True)
    c.execute("create table q(x)")
    c.commit()
    c.execute("vacuum")
    c.execute(f"attach '{d}/db.sqlite' as o")
    c.execute("insert into o.t values(9)")
    c.commit()
    c.close()
    assert sqlite3.connect(d + "/db.sqlite").execute("select count(*) from t").fetchone() == (2,)


@t
def h5py_write(d):
    import h5py
    import numpy as np

    with h5py.File(d + "/x.h5", "w") as f:
        f["a"] = np.arange(10)
    with h5py.File(d + "/x.h5", "r+") as f:
        f["b"] = np.arange(3)
    with h5py.File(d + "/x.h5", "r") as f:
        assert sorted(f) == ["a", "b"]
    with h5py.File(d + "/a.txt", "w") as f:
        f["a"] = 1


@t
def zarr_write(d):
    import zarr

    z = zarr.open(d + "/z.zarr", mode="w", shape=(10,), chunks=(5,), dtype="f4")
    z[:] = 3
    assert float(zarr.open(d + "/z.zarr", mode="r")[3]) == 3


@t
def np_memmap(d):
    import numpy as np

    m = np.memmap(d + "/b.bin", dtype="u1", mode="r+")
    m[:] = 7
    m.flush()
    del m
    assert rd(d + "/b.bin", "rb")[0] == 7
    m = np.memmap(d + "/mm", "f4", "w+", shape=(100,))
    m[:] = 1
    m.flush()
    assert os.path.getsize(d + "/mm") == 400


@t
def np_save(d):
    import numpy as np

    np.save(d + "/a.npy", np.ones(3))
    np.savez(d + "/a.npz", a=np.ones(3))
    np.savetxt(d + "/a.txt", np.ones(3))
    np.ones(3).tofile(d + "/b.bin")
    assert np.fromfile(d + "/b.bin").shape == (3,)
    np.lib.format.open_memmap(d + "/om.npy", "w+", "f4", (3,))[:] = 1
    assert np.load(d + "/om.npy").sum() == 3


@t
def safetensors_write(d):
    import torch
    from safetensors.torch import safe_open, save_file

    save_file({"w": torch.ones(3)}, d + "/m.safetensors")
    save_file({"w": torch.zeros(3)}, d + "/b.bin")
    with safe_open(d + "/m.safetensors", "pt") as f:
        assert f.get_tensor("w").sum() == 3


@t
def torch_save(d):
    import torch

    torch.save({"w": torch.ones(3)}, d + "/m.pt")
    torch.save({"w": torch.ones(3)}, d + "/old.pt", _use_new_zipfile_serialization=False)
    torch.save([1], d + "/a.txt")
    assert torch.load(d + "/m.pt")["w"].sum() == 3
    assert torch.load(d + "/m.pt", mmap=True)["w"].sum() == 3


@t
def torch_from_file(d):
    import torch

    x = torch.from_file(d + "/b.bin", shared=True, size=16, dtype=torch.uint8)
    x.fill_(9)
    assert rd(d + "/b.bin", "rb")[0] == 9


@t
def torch_storage_from_file(d):
    import torch

    s = torch.UntypedStorage.from_file(d + "/b.bin", shared=True, nbytes=64)
    torch.tensor([], dtype=torch.uint8).set_(s).fill_(5) if False else s.fill_(5)
    assert rd(d + "/b.bin", "rb")[0] == 5


@t
def torch_jit_save(d):
    import torch

    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), d + "/j.pt")
    torch.jit.load(d + "/j.pt")


@t
def torch_dcp(d):
    import torch
    import torch.distributed.checkpoint as dcp

    dcp.save({"w": torch.ones(3)}, checkpoint_id=d + "/dcp")
    s = {"w": torch.zeros(3)}
    dcp.load(s, checkpoint_id=d + "/dcp")
    assert s["w"].sum() == 3


@t
def torch_profiler(d):
    import torch

    with torch.profiler.profile() as p:
        torch.ones(3) + 1
    p.export_chrome_trace(d + "/tr.json")
    assert os.path.getsize(d + "/tr.json") > 10


@t
def torch_export_save(d):
    import torch

    ep = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    torch.export.save(ep, d + "/e.pt2")
    assert os.path.getsize(d + "/e.pt2") > 10


@t
def pandas_csv(d):
    import pandas as pd

    df = pd.DataFrame({"a": [1, 2]})
    df.to_csv(d + "/a.txt")
    df.to_csv(d + "/c.csv.gz")
    df.to_pickle(d + "/p.pkl")
    df.to_json(d + "/p.json")
    assert len(pd.read_csv(d + "/a.txt")) == 2


@t
def pandas_parquet(d):
    import pandas as pd

    pd.DataFrame({"a": [1, 2]}).to_parquet(d + "/p.parquet", engine="pyarrow")
    assert len(pd.read_parquet(d + "/p.parquet")) == 2


@t
def pyarrow_direct(d):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), d + "/b.bin")
    f = pa.OSFile(d + "/a.txt", "wb")
    f.write(b"1")
    f.close()
    from pyarrow import fs

    l = fs.LocalFileSystem()
    l.delete_file(d + "/log.txt")
    l.create_dir(d + "/pa")
    l.move(d + "/sub/c.txt", d + "/sub/c2.txt")
    assert not os.path.exists(d + "/log.txt")
    m = pa.memory_map(d + "/b.bin", "r+")
    m.write(b"QQ")
    m.close()


@t
def tensorboard_w(d):
    from torch.utils.tensorboard import SummaryWriter

    w = SummaryWriter(d + "/runs")
    w.add_scalar("a", 1, 1)
    w.close()
    assert os.listdir(d + "/runs")


@t
def pickle_w(d):
    import dbm
    import pickle
    import shelve

    pickle.dump([1], open(d + "/a.txt", "wb"))
    with shelve.open(d + "/sh") as s:
        s["a"] = 1
    with dbm.open(d + "/dbm", "c") as s:
        s["a"] = "1"
    assert pickle.load(open(d + "/a.txt", "rb")) == [1]


@t
def logging_rotating(d):
    import logging
    import logging.handlers as h

    l = logging.getLogger("r" + d)
    x = h.RotatingFileHandler(d + "/log.txt", maxBytes=50, backupCount=3)
    l.addHandler(x)
    for i in range(20):
        l.warning("message %d", i)
    x.close()
    assert os.path.exists(d + "/log.txt.3")
    y = h.TimedRotatingFileHandler(d + "/log.txt", "S", backupCount=1)
    y.doRollover()
    y.close()


@t
def csv_w(d):
    import csv

    with open(d + "/log.txt", "a", newline="") as f:
        csv.writer(f).writerow([1, 2])
    assert rd(d + "/log.txt").count("\n") >= 3


@t
def zip_tar(d):
    import tarfile
    import zipfile

    with zipfile.ZipFile(d + "/z.zip", "w") as z:
        z.write(d + "/a.txt", "a.txt")
        z.writestr("b.bin", "zip")
    with zipfile.ZipFile(d + "/z.zip") as z:
        z.extractall(d)
    assert rd(d + "/b.bin") == "zip"
    with tarfile.open(d + "/t.tgz", "w:gz") as z:
        z.add(d + "/sub", "sub")
    with tarfile.open(d + "/t.tgz") as z:
        z.extractall(d, filter="data")
    with zipfile.ZipFile(d + "/z.zip", "a") as z:
        z.writestr("q", "2")


@t
def gzip_bz_lzma(d):
    import bz2
    import gzip
    import lzma

    gzip.open(d + "/a.txt", "wb").write(b"1")
    bz2.open(d + "/b.bin", "wb").write(b"1")
    lzma.open(d + "/log.txt", "wb").write(b"1")
    assert rd(d + "/b.bin", "rb")[:2] == b"BZ"


@t
def fileinput_inplace(d):
    import fileinput

    with fileinput.input(d + "/log.txt", inplace=True) as f:
        for l in f:
            print(l.upper(), end="")
    assert rd(d + "/log.txt") == "LINE1\nLINE2\n"


@t
def json_configparser(d):
    json.dump({"a": 1}, open(d + "/a.txt", "w"))
    import configparser

    c = configparser.ConfigParser()
    c["a"] = {"b": "1"}
    c.write(open(d + "/log.txt", "w"))
    assert json.load(open(d + "/a.txt")) == {"a": 1}
