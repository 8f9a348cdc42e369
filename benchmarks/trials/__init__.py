"""Programs with known fixes, on which `kinetoscope try` is compared with the edit that its variant replaces."""
