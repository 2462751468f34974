"""macOS' proxy settings, which the standard library reads there: none."""


def _get_proxy_settings() -> dict[str, object]:
    return {}


def _get_proxies() -> dict[str, str]:
    return {}
