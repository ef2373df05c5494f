"""Device profiles: what is known of each GPU, and where it comes from."""

from analyzer.devices.profile import DeviceProfile

__all__ = ["DeviceProfile"]
