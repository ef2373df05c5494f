"""Ways to change files by what the system offers besides."""

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from way import rd, t

L = ctypes.CDLL(None, use_errno=True)


def chk(r):
    if r < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r


@t
def proc_self_fd(d):
    f = open(d + "/a.txt")
    open(f"/proc/self/fd/{f.fileno()}", "w").write("PROCFD")
    assert rd(d + "/a.txt") == "PROCFD", rd(d + "/a.txt")


@t
def proc_self_fd_rm(d):
    f = os.open(d, os.O_RDONLY)
    os.unlink(f"/proc/self/fd/{f}/a.txt")
    assert not os.path.exists(d + "/a.txt")


@t
def proc_self_root(d):
    open("/proc/self/root" + d + "/a.txt", "w").write("ROOT")
    assert rd(d + "/a.txt") == "ROOT"


@t
def proc_self_cwd(d):
    c = os.getcwd()
    os.chdir(d)
    try:
        open("/proc/self/cwd/a.txt", "w").write("CWD")
        assert rd("a.txt") == "CWD"
        os.unlink("b.bin")
        assert not os.path.exists("b.bin")
        open("rel.txt", "w").write("1")
        assert os.getcwd() == d
    finally:
        os.chdir(c)


@t
def proc_ppid_root(d):
    open(f"/proc/{os.getppid()}/root" + d + "/a.txt", "w").write("PPID ESCAPE")


@t
def proc_1_root(d):
    open("/proc/1/root" + d + "/a.txt", "w").write("PID1 ESCAPE")


@t
def proc_ppid_fd(d):
    for n in os.listdir(f"/proc/{os.getppid()}/fd"):
        os.readlink(f"/proc/{os.getppid()}/fd/{n}")


@t
def setns_ppid(d):
    p = os.fork()
    if not p:
        try:
            fd = os.open(f"/proc/{os.getppid() and 1}/ns/mnt", os.O_RDONLY)
            r = L.setns(fd, 0x20000)
            os.chdir("/")
            if r == 0:
                L.syscall
                fd = L.open((d + "/a.txt").encode(), os.O_WRONLY | os.O_TRUNC)
                L.write(fd, b"NS", 2)
            os._exit(0 if r == 0 else 3)
        except BaseException as e:
            os._exit(4)
    s = os.waitpid(p, 0)[1]
    assert s != 0 or True
    print("setns status", s)


@t
def umount_overlay(d):
    p = os.fork()
    if not p:
        r = L.umount2(b"/", 2)
        e = ctypes.get_errno()
        os._exit(0 if r == 0 else e)
    print("umount status", os.waitpid(p, 0)[1] >> 8)


@t
def chroot_escape(d):
    p = os.fork()
    if not p:
        try:
            fd = os.open("/", os.O_RDONLY)
            os.mkdir(d + "/cr")
            os.chroot(d + "/cr")
            os.fchdir(fd)
            for i in range(30):
                os.chdir("..")
            os.chroot(".")
            open(d + "/a.txt", "w").write("chroot")
            os._exit(0)
        except BaseException as e:
            os._exit(5)
    print("chroot", os.waitpid(p, 0)[1] >> 8)


@t
def via_symlink(d):
    open(d + "/link", "w").write("VIA")
    assert rd(d + "/a.txt") == "VIA"
    open(d + "/dlink/c.txt", "w").write("V")
    assert rd(d + "/sub/c.txt") == "V"


@t
def via_hard(d):
    open(d + "/hard", "w").write("H")


@t
def inherited_fd(d):
    f = open(d + "/a.txt", "a")
    os.set_inheritable(f.fileno(), True)
    subprocess.run(["sh", "-c", f"echo inh >&{f.fileno()}"], close_fds=False, check=True)
    assert "inh" in rd(d + "/a.txt")


@t
def dev_shm(d):
    open("/dev/shm/analyze-ways", "w").write("shm")
    assert rd("/dev/shm/analyze-ways") == "shm"
    try:
        os.unlink("/dev/shm/analyze-ways-before")
    except FileNotFoundError:
        pass
    from multiprocessing import shared_memory as s

    x = s.SharedMemory("ways_memory", create=True, size=100)
    x.close()


@t
def tmp_file(d):
    open("/tmp/analyze-ways", "w").write("1")
    open("/var/tmp/analyze-ways", "w").write("1")
    assert rd("/tmp/analyze-ways") == "1"


@t
def home_dot(d):
    open(os.path.expanduser("~/.bashrc"), "a").write("evil")
    open(os.path.expanduser("~/.newrc"), "w").write("evil")
    os.makedirs(os.path.expanduser("~/.config/x"), exist_ok=True)
    open(os.path.expanduser("~/.config/x/y"), "w").write("1")


@t
def etc_file(d):
    open("/etc/analyze-ways", "w").write("1")
    open("/usr/local/bin/analyze-ways", "w").write("1")


@t
def script_itself(d):
    s = rd(__file__)
    open(__file__, "a").write("\n# changed\n")
    assert rd(__file__) == s + "\n# changed\n"


@t
def read_child_file(d):
    subprocess.run(
        [sys.executable, "-c", f"import json; json.dump([1],open({d!r}+'/o.json','w'))"], check=True
    )
    assert json.load(open(d + "/o.json")) == [1]


@t
def stat_overlay(d):
    s0 = os.stat(d + "/a.txt")
    open(d + "/a.txt", "a").write("1")
    s1 = os.stat(d + "/a.txt")
    f = open(d + "/a.txt")
    s2 = os.fstat(f.fileno())
    assert (s1.st_dev, s1.st_ino) == (s2.st_dev, s2.st_ino), (s1, s2)
    assert s1.st_size == s0.st_size + 1
    assert os.path.samefile(d + "/a.txt", d + "/link")
    assert os.path.realpath(d + "/link") == d + "/a.txt"
    assert s1.st_mode == s0.st_mode


@t
def locks(d):
    f = open(d + "/log.txt", "r+")
    fcntl.flock(f, fcntl.LOCK_EX)
    g = open(d + "/log.txt", "r+")
    try:
        fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise AssertionError("lock not exclusive")
    except BlockingIOError:
        pass
    fcntl.lockf(f, fcntl.LOCK_EX)
    from filelock import FileLock

    with FileLock(d + "/l.lock"):
        pass


@t
def unix_socket(d):
    s = socket.socket(socket.AF_UNIX)
    s.bind(d + "/sock")
    s.listen()
    c = socket.socket(socket.AF_UNIX)
    c.connect(d + "/sock")
    a, _ = s.accept()
    a.send(b"1")
    assert c.recv(1) == b"1"
    s.close()
    c.close()
    a.close()


@t
def unix_socket_unlink(d):
    s = socket.socket(socket.AF_UNIX)
    s.bind(d + "/sock")
    s.close()
    os.unlink(d + "/sock")
    assert not os.path.exists(d + "/sock")


@t
def thread_write(d):
    th = [threading.Thread(target=lambda i=i: open(d + f"/th{i}", "w").write("1")) for i in range(8)]
    [x.start() for x in th]
    [x.join() for x in th]
    assert len([n for n in os.listdir(d) if n.startswith("th")]) == 8


@t
def signal_handler(d):
    signal.signal(signal.SIGUSR1, lambda *_: open(d + "/a.txt", "w").write("SIG"))
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.01)
    assert rd(d + "/a.txt") == "SIG"


@t
def at_exit(d):
    import atexit

    atexit.register(lambda: open(d + "/a.txt", "w").write("ATEXIT"))
    atexit.register(lambda: os.unlink(d + "/b.bin"))
    atexit.register(lambda: subprocess.run(["rm", "-rf", d + "/sub"]))


@t
def gc_del(d):
    class X:
        def __del__(s):
            L.unlink((d + "/a.txt").encode())

    sys.modules[__name__].__dict__["keepx"] = X()


@t
def asyncio_sub(d):
    import asyncio

    async def m():
        p = await asyncio.create_subprocess_shell(f"echo as > {d}/a.txt")
        await p.wait()

    asyncio.run(m())
    assert rd(d + "/a.txt") == "as\n"


@t
def pty_spawn(d):
    import pty

    p, fd = pty.fork()
    if not p:
        os.execv("/bin/sh", ["sh", "-c", f"echo pty > {d}/a.txt"])
    os.waitpid(p, 0)
    assert rd(d + "/a.txt") == "pty\n"


@t
def inotify_glob_walk(d):
    import glob

    os.unlink(d + "/a.txt")
    open(d + "/sub/n.txt", "w").write("1")
    assert sorted(os.path.basename(x) for x in glob.glob(d + "/*.txt")) == ["log.txt"]
    assert sorted(glob.glob("**/n.txt", root_dir=d, recursive=True)) == ["dlink/n.txt", "sub/n.txt"]
    assert "n.txt" in [f for _, _, fs in os.walk(d) for f in fs]
    assert [f for *_, fs, _ in os.fwalk(d) for f in fs if f == "a.txt"] == []


@t
def bytes_paths(d):
    open((d + "/a.txt").encode(), "wb").write(b"1")
    os.unlink((d + "/b.bin").encode())
    assert b"b.bin" not in os.listdir(d.encode())


@t
def weird_names(d):
    n = d + "/new\nline\udcff \u202e.txt"
    open(n, "w").write("1")
    assert rd(n) == "1"
    assert os.path.basename(n) in os.listdir(d)
    os.rename(n, d + "/" + "y" * 250)


@t
def long_path(d):
    p = d
    for i in range(12):
        p += "/" + "p" * 200
    os.makedirs(p)
    open(p + "/f", "w").write("1")
    assert rd(p + "/f") == "1"


@t
def torch_cpp_write(d):
    import torch

    w = torch._C.PyTorchFileWriter(d + "/raw.zip")
    w.write_record("a", b"1", 1)
    w.write_end_of_file()
    assert os.path.exists(d + "/raw.zip")


@t
def torch_shared_file(d):
    import torch
    import torch.multiprocessing as tm

    tm.set_sharing_strategy("file_system")
    x = torch.ones(10).share_memory_()
    assert x.is_shared()


@t
def tarfile_symlink(d):
    subprocess.run(["tar", "czf", d + "/t.tgz", "-C", d, "sub"], check=True)
    subprocess.run(["tar", "xzf", d + "/t.tgz", "-C", d + "/empty"], check=True)
    assert os.path.exists(d + "/empty/sub/c.txt")


@t
def git_ops(d):
    subprocess.run(
        "git init -q . && git add -A && git -c user.email=a@b -c user.name=x commit -qm m && git rm -q a.txt",
        shell=True,
        cwd=d,
        check=True,
    )
    assert not os.path.exists(d + "/a.txt")


@t
def immut_ioctl(d):
    import array

    g = os.open(d + "/a.txt", os.O_RDONLY)
    fcntl.ioctl(g, 0x40086602, array.array("l", [0x10]))
    os.close(g)
