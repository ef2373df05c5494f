"""Device profiles: what is known of each GPU, and where it comes from."""

from analyzer.devices.builds import missing_code
from analyzer.devices.loader import by_memory, capacity_of, from_dict, load, named, names, resolve, stands_in
from analyzer.devices.profile import DeviceProfile
from analyzer.devices.sizes import check_bare, is_size, parse_size

__all__ = [
    "DeviceProfile",
    "by_memory",
    "capacity_of",
    "check_bare",
    "from_dict",
    "is_size",
    "load",
    "missing_code",
    "named",
    "names",
    "parse_size",
    "resolve",
    "stands_in",
]
