"""What moves: pairs of frames with their flow, two eyes' views with their disparity, bodies and particles over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.subjects.public.data.images import flat, picture


def kitti_flow(folder: Path, count: int = 24, width: int = 620, height: int = 376) -> None:
    """KITTI's pictures, image_2/N_10.png and N_11.png, with flow_occ/N_10.png: 16 bits, the flow and whether it is known."""
    import cv2

    rng = np.random.default_rng(0)
    for part in ("training", "testing"):
        for name in ("image_2", "flow_occ"):
            (folder / part / name).mkdir(parents=True, exist_ok=True)
        for n in range(count):
            for k in (10, 11):
                picture(folder / part / "image_2" / f"{n:06d}_{k}.png", 2 * n + k, width, height)
            flow = rng.normal(2**15, 256, (height, width, 2))
            known = rng.integers(0, 2, (height, width, 1))
            stored = np.concatenate([known, flow], 2).astype(np.uint16)
            cv2.imwrite(str(folder / part / "flow_occ" / f"{n:06d}_10.png"), stored)


def scene_flow(folder: Path, count: int = 4, width: int = 960, height: int = 540) -> None:
    """Scene Flow's three parts, a few frames each: left and right pictures, and the left one's disparity as .pfm."""
    places = [f"driving_frames_cleanpass/{f}_focallength/scene_{d}/{s}" for f in ("35mm", "15mm")
              for d in ("backwards", "forwards") for s in ("fast", "slow")]  # fmt: skip
    places += [f"frames_cleanpass/TRAIN/{part}/0000" for part in "ABC"]
    places += [f"frames_cleanpass/TEST/{part}/0000" for part in "ABC"] + ["monkaa_frames_cleanpass/a_rain"]
    rng = np.random.default_rng(0)
    for place in places:
        each = count if "TRAIN" in place or "monkaa" in place else 1
        for side in ("left", "right"):
            flat(folder / place / side, each, width, height, "png")
        disparities = folder / place.replace("frames_cleanpass", "frames_disparity")
        (disparities / "left").mkdir(parents=True, exist_ok=True)
        for n in range(each):
            values = rng.uniform(1, 150, (height, width)).astype("<f4")
            head = f"Pf\n{width} {height}\n-1.0\n".encode()
            (disparities / "left" / f"{n:06d}.pfm").write_bytes(head + values.tobytes())


def human36m(
    folder: Path, frames: int = 400, actions: int = 2, subjects: tuple[str, ...] = ("S1", "S5", "S6", "S7", "S8", "S9", "S11")
) -> None:  # fmt: skip
    """data_3d_h36m.npz and data_2d_h36m_gt.npz: positions of 32 joints, and of 17 seen by four cameras."""
    rng = np.random.default_rng(0)
    whole: dict[str, dict[str, Any]] = {}
    seen: dict[str, dict[str, Any]] = {}
    for subject in subjects:
        names = [f"Walking {n}" for n in range(actions)]
        whole[subject] = {name: rng.normal(size=(frames, 32, 3)).astype(np.float32) for name in names}
        seen[subject] = {
            name: [rng.uniform(0, 1000, (frames, 17, 2)).astype(np.float32) for _ in range(4)]
            for name in names
        }
    np.savez_compressed(folder / "data_3d_h36m.npz", positions_3d=np.array(whole, dtype=object))
    told = {
        "layout_name": "h36m",
        "num_joints": 17,
        "keypoints_symmetry": [[4, 5, 6, 11, 12, 13], [1, 2, 3, 14, 15, 16]],
    }
    np.savez_compressed(
        folder / "data_2d_h36m_gt.npz",
        positions_2d=np.array(seen, dtype=object),
        metadata=np.array(told, dtype=object),
    )


def particles(
    folder: Path, train: int = 3000, valid: int = 500, frames: int = 49, count: int = 5, suffix: str = "_charged5_initvel1small"
) -> None:  # fmt: skip
    """loc, vel, edges and charges of charged particles, as the simulations of interacting systems store them."""
    rng = np.random.default_rng(0)
    for part, rows in (("train", train), ("valid", valid), ("test", valid)):
        shape = (rows, frames, 3 if "charged5" in suffix else 2, count)
        charges = rng.choice([-1.0, 1.0], (rows, count, 1))
        np.save(folder / f"loc_{part}{suffix}.npy", rng.normal(size=shape))
        np.save(folder / f"vel_{part}{suffix}.npy", rng.normal(size=shape))
        np.save(folder / f"edges_{part}{suffix}.npy", charges @ charges.transpose(0, 2, 1))
        np.save(folder / f"charges_{part}{suffix}.npy", charges)
