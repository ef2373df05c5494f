"""Pictures in the forms that vision programs read."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np


def _pixels(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def _idx(file: Path, array: np.ndarray[Any, Any]) -> None:
    """The form of MNIST's files: two zeros, 8 for unsigned bytes, the number of dimensions, each, the bytes."""
    data = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    file.write_bytes(data)
    with gzip.GzipFile(f"{file}.gz", "wb", compresslevel=1, mtime=0) as packed:
        packed.write(data)


def mnist(folder: Path, name: str = "MNIST", train: int = 2000, test: int = 500, classes: int = 10) -> None:
    """FOLDER/NAME/raw as torchvision's MNIST (FashionMNIST, KMNIST) has it."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for seed, (part, count) in enumerate((("train", train), ("t10k", test))):
        _idx(raw / f"{part}-images-idx3-ubyte", _pixels(seed, count, 28, 28))
        _idx(raw / f"{part}-labels-idx1-ubyte", (np.arange(count) % classes).astype(np.uint8))


def cifar10(folder: Path, train: int = 2000, test: int = 500) -> None:
    """FOLDER/cifar-10-batches-py as torchvision's CIFAR10 has it."""
    place = folder / "cifar-10-batches-py"
    place.mkdir(parents=True, exist_ok=True)
    parts = {f"data_batch_{n}": train // 5 for n in range(1, 6)} | {"test_batch": test}
    for seed, (name, count) in enumerate(parts.items()):
        labels = [int(n % 10) for n in range(count)]
        (place / name).write_bytes(pickle.dumps({"data": _pixels(seed, count, 3072), "labels": labels}))
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class{n}" for n in range(10)]}))


def cifar100(folder: Path, train: int = 2000, test: int = 500) -> None:
    """FOLDER/cifar-100-python as torchvision's CIFAR100 has it."""
    place = folder / "cifar-100-python"
    place.mkdir(parents=True, exist_ok=True)
    for seed, (name, count) in enumerate((("train", train), ("test", test))):
        fine = [int(n % 100) for n in range(count)]
        told = {
            "data": _pixels(seed, count, 3072),
            "fine_labels": fine,
            "coarse_labels": [n // 5 for n in fine],
        }
        (place / name).write_bytes(pickle.dumps(told))
    names = {
        "fine_label_names": [f"class{n}" for n in range(100)],
        "coarse_label_names": [f"kind{n}" for n in range(20)],
    }
    (place / "meta").write_bytes(pickle.dumps(names))


def picture(file: Path, seed: int, width: int, height: int) -> None:
    """A smooth random picture: small as a JPEG, quick to write."""
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    small = Image.fromarray(_pixels(seed, max(2, height // 16), max(2, width // 16), 3))
    small.resize((width, height), Image.Resampling.BILINEAR).save(file)


def flat(
    folder: Path,
    count: int = 64,
    width: int = 256,
    height: int = 256,
    form: str = "jpg",
    name: str = "{:06d}",
) -> None:
    """FOLDER/000000.jpg and so on."""
    for n in range(count):
        picture(folder / f"{name.format(n)}.{form}", n, width, height)


def classes(
    folder: Path,
    parts: dict[str, int] | None = None,
    count: int = 10,
    width: int = 320,
    height: int = 256,
    form: str = "jpg",
) -> None:
    """FOLDER/PART/CLASS/N.jpg, as ImageFolder reads them; parts: how many pictures each has (of each class)."""
    for n, (part, each) in enumerate((parts or {"train": 16, "val": 4}).items()):
        for kind in range(count):
            for k in range(each):
                picture(
                    folder / part / f"n{kind:08d}" / f"{k}.{form}",
                    100_000 * n + 1000 * kind + k,
                    width,
                    height,
                )


def bsd300(folder: Path, train: int = 40, test: int = 20) -> None:
    """FOLDER/BSDS300/images as the archive of Berkeley's segmentation data unpacks."""
    for part, count in (("train", train), ("test", test)):
        flat(folder / "BSDS300/images" / part, count, 321, 321)


def carvana(folder: Path, count: int = 24, width: int = 960, height: int = 640) -> None:
    """FOLDER/imgs/N.jpg and FOLDER/masks/N_mask.gif, of two values."""
    from PIL import Image

    flat(folder / "imgs", count, width, height)
    (folder / "masks").mkdir(parents=True, exist_ok=True)
    for n in range(count):
        mask = np.zeros((height, width), np.uint8)
        mask[height // 4 : -height // 4, width // 4 + n : -width // 4] = 1
        Image.fromarray(mask).save(folder / "masks" / f"{n:06d}_mask.gif")


def voc(folder: Path, count: int = 24, width: int = 320, height: int = 280, kinds: int = 21) -> None:
    """FOLDER/VOCdevkit/VOC2012 with segmentation: JPEGImages, SegmentationClass and the lists of both parts."""
    from PIL import Image

    root = folder / "VOCdevkit/VOC2012"
    flat(root / "JPEGImages", count, width, height)
    masks, lists = root / "SegmentationClass", root / "ImageSets/Segmentation"
    masks.mkdir(parents=True, exist_ok=True)
    lists.mkdir(parents=True, exist_ok=True)
    for n in range(count):
        mask = np.zeros((height, width), np.uint8)
        mask[20:-20, 20:-20] = n % kinds
        image = Image.fromarray(mask, mode="P")
        image.putpalette([value for k in range(256) for value in (k, k, k)])
        image.save(masks / f"{n:06d}.png")
    for part, start, end in (
        ("train", 0, count * 3 // 4),
        ("val", count * 3 // 4, count),
        ("trainval", 0, count),
    ):
        (lists / f"{part}.txt").write_text("".join(f"{n:06d}\n" for n in range(start, end)))


def boxes(
    folder: Path, train: int = 24, val: int = 8, size: int = 320, kinds: int = 3, each: int = 4
) -> None:
    """FOLDER/images/PART/N.jpg with labels/PART/N.txt (kind, centre and size of each box), and data.yaml, as YOLO reads them."""
    draw = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        flat(folder / "images" / part, count, size, size)
        labels = folder / "labels" / part
        labels.mkdir(parents=True, exist_ok=True)
        for n in range(count):
            rows = [(k % kinds, *draw.uniform(0.3, 0.7, 2), *draw.uniform(0.1, 0.5, 2)) for k in range(each)]
            text = "".join(f"{kind} {x:.4f} {y:.4f} {w:.4f} {h:.4f}\n" for kind, x, y, w, h in rows)
            (labels / f"{n:06d}.txt").write_text(text)
    names = "".join(f"  {k}: kind{k}\n" for k in range(kinds))
    text = f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}"
    (folder / "data.yaml").write_text(text)


def videos(
    folder: Path, train: int = 16, val: int = 4, kinds: int = 4, frames: int = 20, size: int = 128
) -> None:
    """FOLDER/videos/KIND/NAME/image_N.jpg and FOLDER/annotations.json, as programs of 3D networks read Kinetics."""
    import json

    database = {}
    for n in range(train + val):
        kind, name = f"kind{n % kinds}", f"video{n:03d}"
        for k in range(1, frames + 1):
            picture(folder / "videos" / kind / name / f"image_{k:05d}.jpg", 100 * n + k, size, size)
        subset = "training" if n < train else "validation"
        database[name] = {"subset": subset, "annotations": {"label": kind, "segment": [1, frames + 1]}}
    told = {"labels": [f"kind{k}" for k in range(kinds)], "database": database}
    (folder / "annotations.json").write_text(json.dumps(told))


def super_resolution_h5(folder: Path, scale: int = 3, train: int = 128, val: int = 4, size: int = 17) -> None:
    """FOLDER/train.h5 and eval.h5: small and large luminance patches, as ESPCN's and SRCNN's programs read them."""
    import h5py

    with h5py.File(folder / "train.h5", "w") as file:
        file["lr"] = _pixels(0, train, size, size).astype(np.float32)
        file["hr"] = _pixels(1, train, size * scale, size * scale).astype(np.float32)
    with h5py.File(folder / "eval.h5", "w") as file:
        for n in range(val):
            file[f"lr/{n}"] = _pixels(n, 80 + 8 * n, 120).astype(np.float32)
            file[f"hr/{n}"] = _pixels(n, (80 + 8 * n) * scale, 120 * scale).astype(np.float32)


def blender(folder: Path, train: int = 6, test: int = 8, size: int = 128) -> None:
    """FOLDER/PART/r_N.png with transforms_PART.json: pictures with an alpha channel and where the camera stood, as NeRF reads."""
    import json

    from PIL import Image

    for seed, (part, count) in enumerate((("train", train), ("val", test), ("test", test))):
        (folder / part).mkdir(parents=True, exist_ok=True)
        frames = []
        for n in range(count):
            Image.fromarray(_pixels(100 * seed + n, size, size, 4)).save(folder / part / f"r_{n}.png")
            place = [
                [1.0, 0.0, 0.0, 0.1 * n],
                [0.0, 1.0, 0.0, 0.0],
                [0.0, 0.0, 1.0, 4.0],
                [0.0, 0.0, 0.0, 1.0],
            ]
            frames.append({"file_path": f"./{part}/r_{n}", "transform_matrix": place})
        told = {"camera_angle_x": 0.69, "frames": frames}
        (folder / f"transforms_{part}.json").write_text(json.dumps(told))


def captioned(folder: Path, count: int = 24, size: int = 256) -> None:
    """FOLDER/N.jpg with metadata.jsonl: a line of text for each, as `datasets` reads a folder of pictures."""
    import json

    flat(folder, count, size, size)
    rows = (json.dumps({"file_name": f"{n:06d}.jpg", "text": f"a picture of w{n}"}) for n in range(count))
    (folder / "metadata.jsonl").write_text("".join(row + "\n" for row in rows))


def masked(folder: Path, images: str, masks: str, count: int = 24, size: int = 320) -> None:
    """FOLDER/IMAGES/N.jpg and FOLDER/MASKS/N.png, black and white."""
    from PIL import Image

    flat(folder / images, count, size, size)
    (folder / masks).mkdir(parents=True, exist_ok=True)
    for n in range(count):
        mask = np.zeros((size, size), np.uint8)
        mask[size // 4 : -size // 4, size // 4 + n : -size // 4] = 255
        Image.fromarray(mask).save(folder / masks / f"{n:06d}.png")


def coco(
    folder: Path, parts: dict[str, int] | None = None, width: int = 640, height: int = 480, kinds: int = 90, each: int = 6
) -> None:  # fmt: skip
    """FOLDER/PART/N.jpg and annotations/instances_PART.json, as COCO has them: boxes with a polygon each."""
    import json

    rng = np.random.default_rng(0)
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    for part, count in (parts or {"train2017": 16, "val2017": 4}).items():
        flat(folder / part, count, width, height)
        boxes_of: list[dict[str, Any]] = []
        for n in range(count * each):
            x, y = float(rng.integers(0, width // 2)), float(rng.integers(0, height // 2))
            w, h = float(rng.integers(30, width // 2)), float(rng.integers(30, height // 2))
            polygon = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            boxes_of.append(
                {"id": n + 1, "image_id": n // each, "category_id": n % kinds + 1, "bbox": [x, y, w, h],
                 "area": w * h, "iscrowd": 0, "segmentation": polygon}
            )  # fmt: skip
        told = {
            "info": {}, "licenses": [],
            "images": [{"id": n, "file_name": f"{n:06d}.jpg", "width": width, "height": height} for n in range(count)],
            "annotations": boxes_of, "categories": [{"id": k + 1, "name": f"kind{k}"} for k in range(kinds)],
        }  # fmt: skip
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(told))


def objects_json(folder: Path, count: int = 32, size: int = 400, kinds: int = 20, each: int = 4) -> None:
    """FOLDER/TRAIN_images.json and TRAIN_objects.json: the paths of pictures, and the boxes, labels and difficulties in each."""
    import json

    rng = np.random.default_rng(0)
    flat(folder / "pictures", count, size, size)
    paths = [str(folder / "pictures" / f"{n:06d}.jpg") for n in range(count)]
    objects = []
    for _ in range(count):
        corners = rng.integers(0, size // 2, (each, 2))
        boxes = np.concatenate([corners, corners + rng.integers(40, size // 2, (each, 2))], 1).tolist()
        labels = (rng.integers(0, kinds, each) + 1).tolist()
        objects.append({"boxes": boxes, "labels": labels, "difficulties": [0] * each})
    for part in ("TRAIN", "TEST"):
        (folder / f"{part}_images.json").write_text(json.dumps(paths))
        (folder / f"{part}_objects.json").write_text(json.dumps(objects))


def faces(folder: Path, count: int = 24, size: int = 900, each: int = 3) -> None:
    """FOLDER/images/N.jpg and label.txt as WIDER FACE's: a picture's name, then for each face its box and five points of it."""
    rng = np.random.default_rng(0)
    flat(folder / "images", count, size, size)
    lines = []
    for n in range(count):
        lines.append(f"# {n:06d}.jpg")
        for _ in range(each):
            (x, y), (w, h) = rng.integers(0, size // 2, 2), rng.integers(80, size // 2, 2)
            points = [f"{x + w * a:.2f} {y + h * b:.2f} 0.0" for a, b in rng.uniform(0.2, 0.8, (5, 2))]
            lines.append(f"{x} {y} {w} {h} {' '.join(points)} 0.9")
    (folder / "label.txt").write_text("\n".join(lines) + "\n")


def volumes(
    folder: Path, count: int = 4, shape: tuple[int, ...] = (160, 192, 224), listed: str = "list.txt"
) -> None:
    """FOLDER/N.npz with a volume called "vol", and a file that lists them."""
    rng = np.random.default_rng(0)
    names = []
    for n in range(count):
        names.append(str(folder / f"{n:03d}.npz"))
        np.savez(names[-1], vol=rng.random(shape, dtype=np.float32))
    (folder / listed).write_text("\n".join(names) + "\n")


def mini_imagenet(folder: Path, classes: int = 64, each: int = 20, size: int = 84) -> None:
    """miniImageNet_category_split_PART.pickle: pictures as arrays, and their classes."""
    for seed, part in enumerate(("train_phase_train", "train_phase_val", "val", "test")):
        labels = [n % classes for n in range(classes * each)]
        told = {"data": _pixels(seed, len(labels), size, size, 3), "labels": labels}
        (folder / f"miniImageNet_category_split_{part}.pickle").write_bytes(pickle.dumps(told))


def labelled_volumes(
    folder: Path, count: int = 2, shape: tuple[int, ...] = (64, 160, 160), kinds: int = 4
) -> None:
    """FOLDER/N.h5 with "raw" and the number of a kind for each voxel, "label"."""
    import h5py

    rng = np.random.default_rng(0)
    for n in range(count):
        with h5py.File(folder / f"{n}.h5", "w") as file:
            file["raw"] = rng.random(shape, dtype=np.float32)
            file["label"] = rng.integers(0, kinds, shape, dtype=np.uint8)


def pairs(folder: Path, count: int = 12, size: int = 192, scale: int = 2) -> None:
    """FOLDER/H/N.png and FOLDER/L/N.png, the same name, the latter so many times smaller."""
    flat(folder / "H", count, size, size, "png")
    flat(folder / "L", count, size // scale, size // scale, "png")


def boxes_listed(
    folder: Path, lists: tuple[str, ...] = ("2007_train.txt", "2007_val.txt"), count: int = 40, size: int = 500, kinds: int = 20
) -> None:  # fmt: skip
    """A picture's path and its boxes (x1,y1,x2,y2,kind) a line."""
    rng = np.random.default_rng(0)
    flat(folder / "pictures", count, size, size)
    for name in lists:
        lines = []
        for n in range(count):
            (x, y), (w, h) = rng.integers(0, size // 2, (2, 3)), rng.integers(50, size // 2, (2, 3))
            told = " ".join(f"{x[k]},{y[k]},{x[k] + w[k]},{y[k] + h[k]},{(n + k) % kinds}" for k in range(3))
            lines.append(f"{folder / 'pictures'}/{n:06d}.jpg {told}\n")
        (folder / name).write_text("".join(lines))
