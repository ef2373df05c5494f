"""Ways to change files by processes, and by the C library."""

import ctypes
import os
import subprocess
import sys
import time

from way import _DS, _w, rd, t


@t
def sp_cp_mv_rm(d):
    subprocess.run(["cp", d + "/b.bin", d + "/a.txt"], check=True)
    subprocess.run(["mv", d + "/log.txt", d + "/m.txt"], check=True)
    subprocess.run(["rm", "-rf", d + "/sub"], check=True)
    assert not os.path.exists(d + "/sub") and os.path.exists(d + "/m.txt")


@t
def sp_shell(d):
    subprocess.run(
        f"echo hi > {d}/a.txt; echo x >> {d}/log.txt; dd if=/dev/zero of={d}/b.bin bs=10 count=1 2>/dev/null; sed -i s/c/d/ {d}/sub/c.txt; ln -sf b.bin {d}/link; chmod 777 {d}/a.txt; touch -d @1 {d}/hard; truncate -s 0 {d}/db.sqlite; tee {d}/tee </dev/null",
        shell=True,
        check=True,
    )
    assert rd(d + "/a.txt") == "hi\n" and rd(d + "/sub/c.txt") == "d\n"


@t
def os_system(d):
    assert os.system(f"echo hi > {d}/a.txt") == 0
    assert rd(d + "/a.txt") == "hi\n"


@t
def os_popen(d):
    os.popen(f"echo hi > {d}/a.txt").read()
    assert rd(d + "/a.txt") == "hi\n"


@t
def posix_spawn(d):
    p = os.posix_spawn("/bin/sh", ["sh", "-c", f"echo hi > {d}/a.txt"], os.environ)
    os.waitpid(p, 0)
    assert rd(d + "/a.txt") == "hi\n"


@t
def os_spawnv(d):
    os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", f"echo hi > {d}/a.txt"])
    assert rd(d + "/a.txt") == "hi\n"


@t
def os_fork(d):
    p = os.fork()
    if not p:
        try:
            open(d + "/a.txt", "w").write("child")
            open(d + "/fromchild", "w").write("1")
        finally:
            os._exit(0)
    os.waitpid(p, 0)
    assert rd(d + "/a.txt") == "child"


@t
def fork_exec(d):
    p = os.fork()
    if not p:
        os.execv("/bin/sh", ["sh", "-c", f'echo hi > {d}/a.txt; env -i /bin/sh -c "rm {d}/b.bin"'])
    os.waitpid(p, 0)
    assert rd(d + "/a.txt") == "hi\n" and not os.path.exists(d + "/b.bin")


@t
def py_child_clean_env(d):
    subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"open({d!r}+'/a.txt','w').write('I'); import os; os.unlink({d!r}+'/b.bin')",
        ],
        env={},
        check=True,
    )
    assert rd(d + "/a.txt") == "I"


@t
def py_child(d):
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"open({d!r}+'/a.txt','w').write('I'); import os; os.rename({d!r}+'/b.bin',{d!r}+'/b3')",
        ],
        check=True,
    )
    assert rd(d + "/a.txt") == "I" and os.path.exists(d + "/b3")


@t
def mp_spawn(d):
    import multiprocessing as mp

    p = mp.get_context("spawn").Process(target=_w, args=(d + "/a.txt", "spawned"))
    p.start()
    p.join()
    assert rd(d + "/a.txt") == "spawned"


@t
def mp_fork(d):
    import multiprocessing as mp

    p = mp.get_context("fork").Process(target=_w, args=(d + "/a.txt", "forked"))
    p.start()
    p.join()
    assert rd(d + "/a.txt") == "forked"


@t
def mp_forkserver_pool(d):
    import multiprocessing as mp

    with mp.get_context("forkserver").Pool(2) as p:
        p.starmap(_w, [(d + "/a.txt", "fs")] * 3)
    assert rd(d + "/a.txt") == "fs"


@t
def futures_ppe(d):
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as p:
        list(p.map(_w, [d + "/a.txt"] * 2, ["pp"] * 2))
    assert rd(d + "/a.txt") == "pp"


@t
def dataloader_workers(d):
    import torch.utils.data as D

    list(D.DataLoader(_DS(d), batch_size=2, num_workers=2))
    assert os.path.exists(d + "/w0"), os.listdir(d)


@t
def daemon_double_fork(d):
    p = os.fork()
    if not p:
        os.setsid()
        if os.fork():
            os._exit(0)
        for f in range(3, 100):
            pass
        time.sleep(8)
        try:
            open(d + "/a.txt", "w").write("daemon after end")
            open(d + "/late", "w").write("1")
        finally:
            os._exit(0)
    os.waitpid(p, 0)


@t
def nohup_bg(d):
    subprocess.Popen(
        f"sleep 8; echo late > {d}/a.txt; rm -f {d}/b.bin",
        shell=True,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


L = ctypes.CDLL(None, use_errno=True)


def chk(r):
    if r < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r


@t
def libc_open(d):
    fd = chk(L.open((d + "/a.txt").encode(), os.O_WRONLY | os.O_TRUNC))
    L.write(fd, b"LIBC", 4)
    L.close(fd)
    assert rd(d + "/a.txt") == "LIBC"


@t
def libc_unlink(d):
    chk(L.unlink((d + "/a.txt").encode()))
    assert not os.path.exists(d + "/a.txt")


@t
def libc_rename(d):
    chk(L.rename((d + "/a.txt").encode(), (d + "/q.txt").encode()))
    assert os.path.exists(d + "/q.txt")


@t
def libc_fopen(d):
    L.fopen.restype = ctypes.c_void_p
    f = L.fopen((d + "/a.txt").encode(), b"w")
    if not f:
        raise OSError(ctypes.get_errno(), "fopen")
    L.fputs(b"hello", ctypes.c_void_p(f))
    L.fclose(ctypes.c_void_p(f))
    assert rd(d + "/a.txt") == "hello"


@t
def sys_openat(d):
    fd = chk(L.syscall(257, -100, (d + "/a.txt").encode(), os.O_WRONLY | os.O_TRUNC, 0))
    os.write(fd, b"SYS")
    os.close(fd)
    assert rd(d + "/a.txt") == "SYS"


@t
def sys_truncate(d):
    chk(L.syscall(76, (d + "/b.bin").encode(), ctypes.c_long(5)))
    assert os.path.getsize(d + "/b.bin") == 5


@t
def sys_renameat2_exchange(d):
    chk(L.syscall(316, -100, (d + "/a.txt").encode(), -100, (d + "/log.txt").encode(), 2))
    assert rd(d + "/a.txt").startswith("line1")


@t
def sys_chmod_utime(d):
    chk(L.chmod((d + "/a.txt").encode(), 0o777))
    chk(L.utimes((d + "/a.txt").encode(), None))


@t
def sys_chmod_dir(d):
    chk(L.chmod((d + "/sub").encode(), 0o700))


@t
def sys_setxattr(d):
    chk(L.setxattr((d + "/a.txt").encode(), b"user.k", b"zz", 2, 0))


@t
def c_ext(d):
    l = ctypes.CDLL(os.environ["WAYS_LIBRARY"])
    r = l.change((d + "/").encode())
    assert r == 0, r
