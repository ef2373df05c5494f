"""Ways to change files by Python's own functions."""

import io
import os
import threading

from way import rd, t


@t
def open_w(d):
    open(d + "/a.txt", "w").write("X")
    assert rd(d + "/a.txt") == "X"


@t
def open_a(d):
    open(d + "/log.txt", "a").write("line3\n")
    assert rd(d + "/log.txt") == "line1\nline2\nline3\n"


@t
def open_rplus(d):
    with open(d + "/b.bin", "r+b") as f:
        f.seek(10)
        f.write(b"ZZ")
    assert rd(d + "/b.bin", "rb")[10:12] == b"ZZ"


@t
def open_x(d):
    open(d + "/new.txt", "x").write("n")
    assert os.path.exists(d + "/new.txt")


@t
def open_wplus(d):
    with open(d + "/a.txt", "w+") as f:
        f.write("q")
        f.seek(0)
        assert f.read() == "q"


@t
def io_fileio(d):
    f = io.FileIO(d + "/a.txt", "w")
    f.write(b"1")
    f.close()
    assert rd(d + "/a.txt") == "1"


@t
def os_open_dirfd(d):
    fd = os.open(d, os.O_RDONLY)
    g = os.open("a.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=fd)
    os.write(g, b"Y")
    os.close(g)
    os.close(fd)
    assert rd(d + "/a.txt") == "Y"


@t
def os_open_trunc_rdonly(d):
    g = os.open(d + "/a.txt", os.O_RDONLY | os.O_TRUNC)
    os.close(g)
    assert rd(d + "/a.txt") == ""


@t
def os_open_creat_dirfd(d):
    fd = os.open(d + "/sub", os.O_RDONLY | os.O_DIRECTORY)
    g = os.open("../new", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd)
    os.write(g, b"1")
    os.close(g)
    os.close(fd)
    assert os.path.exists(d + "/new")


@t
def os_tmpfile(d):
    g = os.open(d, os.O_TMPFILE | os.O_RDWR)
    os.write(g, b"hi")
    os.link(f"/proc/self/fd/{g}", d + "/linked", follow_symlinks=True)
    assert rd(d + "/linked") == "hi"


@t
def pwrite(d):
    g = os.open(d + "/b.bin", os.O_RDWR)
    os.pwrite(g, b"PPP", 100)
    os.writev(g, [b"a", b"b"])
    os.close(g)
    assert rd(d + "/b.bin", "rb")[100:103] == b"PPP"


@t
def os_replace(d):
    open(d + "/n", "w").write("n")
    os.replace(d + "/n", d + "/a.txt")
    assert rd(d + "/a.txt") == "n" and not os.path.exists(d + "/n")


@t
def os_rename(d):
    os.rename(d + "/a.txt", d + "/r.txt")
    assert rd(d + "/r.txt") == "original a\n" and not os.path.exists(d + "/a.txt")
    assert "a.txt" not in os.listdir(d)


@t
def os_rename_dir(d):
    os.rename(d + "/sub", d + "/sub2")
    assert rd(d + "/sub2/c.txt") == "c\n" and not os.path.exists(d + "/sub")
    assert os.listdir(d + "/sub2/deep") == ["e.txt"]


@t
def os_rename_dirfd(d):
    fd = os.open(d, os.O_RDONLY)
    os.rename("a.txt", "z.txt", src_dir_fd=fd, dst_dir_fd=fd)
    os.close(fd)
    assert os.path.exists(d + "/z.txt")


@t
def os_renames(d):
    os.renames(d + "/a.txt", d + "/x/y/z.txt")
    assert rd(d + "/x/y/z.txt") == "original a\n"


@t
def os_link(d):
    os.link(d + "/b.bin", d + "/b2")
    open(d + "/b2", "wb").write(b"1")
    assert rd(d + "/b.bin", "rb") == b"1" or True


@t
def os_symlink(d):
    os.symlink(d + "/a.txt", d + "/s")
    open(d + "/s", "w").write("via")
    assert rd(d + "/a.txt") == "via"


@t
def os_unlink(d):
    os.unlink(d + "/a.txt")
    assert not os.path.exists(d + "/a.txt")


@t
def os_unlink_dirfd(d):
    fd = os.open(d, os.O_RDONLY)
    os.unlink("a.txt", dir_fd=fd)
    os.rmdir("empty", dir_fd=fd)
    os.close(fd)
    assert not os.path.exists(d + "/empty")


@t
def os_truncate(d):
    os.truncate(d + "/b.bin", 7)
    assert os.stat(d + "/b.bin").st_size == 7


@t
def os_ftruncate(d):
    g = os.open(d + "/b.bin", os.O_RDWR)
    os.ftruncate(g, 3)
    os.close(g)
    assert os.path.getsize(d + "/b.bin") == 3


@t
def os_truncate_fd(d):
    g = os.open(d + "/b.bin", os.O_RDWR)
    os.truncate(g, 3)
    os.close(g)
    assert os.path.getsize(d + "/b.bin") == 3


@t
def os_utime(d):
    os.utime(d + "/a.txt", (1, 1))
    assert os.stat(d + "/a.txt").st_mtime == 1


@t
def os_utime_fd(d):
    g = os.open(d + "/a.txt", os.O_RDONLY)
    os.utime(g, (1, 1))
    os.close(g)
    assert os.stat(d + "/a.txt").st_mtime == 1


@t
def os_chmod(d):
    os.chmod(d + "/a.txt", 0o777)
    assert os.stat(d + "/a.txt").st_mode & 0o777 == 0o777


@t
def os_fchmod(d):
    g = os.open(d + "/a.txt", os.O_RDONLY)
    os.fchmod(g, 0o777)
    os.close(g)
    assert os.stat(d + "/a.txt").st_mode & 0o777 == 0o777


@t
def os_chown(d):
    os.chown(d + "/a.txt", 12, 12)
    assert os.stat(d + "/a.txt").st_uid == 12


@t
def os_fchown(d):
    g = os.open(d + "/a.txt", os.O_RDONLY)
    os.fchown(g, 12, 12)
    os.close(g)


@t
def os_lchown(d):
    os.lchown(d + "/link", 12, 12)


@t
def os_setxattr(d):
    os.setxattr(d + "/a.txt", "user.k", b"w")
    assert os.getxattr(d + "/a.txt", "user.k") == b"w"


@t
def os_removexattr(d):
    os.removexattr(d + "/a.txt", "user.k")


@t
def os_mkdir_rmdir(d):
    os.mkdir(d + "/m")
    os.rmdir(d + "/empty")
    assert os.path.isdir(d + "/m") and not os.path.exists(d + "/empty")


@t
def os_removedirs(d):
    os.unlink(d + "/sub/deep/e.txt")
    os.unlink(d + "/sub/c.txt")
    os.removedirs(d + "/sub/deep")
    assert not os.path.exists(d + "/sub")


@t
def os_makedirs(d):
    os.makedirs(d + "/k/l/m")
    open(d + "/k/l/m/f", "w").write("1")
    assert sorted(e.name for e in os.scandir(d + "/k/l")) == ["m"]


@t
def os_scandir(d):
    os.unlink(d + "/a.txt")
    open(d + "/zz", "w").write("1")
    n = {e.name: (e.is_file(), e.is_dir(), e.stat().st_size) for e in os.scandir(d)}
    assert "a.txt" not in n and n["zz"] == (True, False, 1), n
    assert n["sub"][1]


@t
def os_mkfifo(d):
    os.mkfifo(d + "/ff")
    th = threading.Thread(target=lambda: open(d + "/ff", "w").write("fifo"))
    th.start()
    assert rd(d + "/ff") == "fifo"
    th.join()


@t
def os_mknod(d):
    os.mknod(d + "/nod", 0o600 | 0o100000)
    assert os.path.exists(d + "/nod")


@t
def copy_file_range(d):
    a = os.open(d + "/b.bin", os.O_RDONLY)
    b = os.open(d + "/a.txt", os.O_WRONLY | os.O_TRUNC)
    os.copy_file_range(a, b, 4096)
    os.close(a)
    os.close(b)
    assert os.path.getsize(d + "/a.txt") == 4096


@t
def sendfile(d):
    a = os.open(d + "/b.bin", os.O_RDONLY)
    b = os.open(d + "/a.txt", os.O_WRONLY | os.O_TRUNC)
    os.sendfile(b, a, 0, 4096)
    os.close(a)
    os.close(b)
    assert os.path.getsize(d + "/a.txt") == 4096


@t
def fallocate(d):
    g = os.open(d + "/b.bin", os.O_RDWR)
    os.posix_fallocate(g, 0, 100000)
    os.close(g)
    assert os.path.getsize(d + "/b.bin") == 100000
