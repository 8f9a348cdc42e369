"""Reference implementations, naive and short, with which tests compare the native extension."""
