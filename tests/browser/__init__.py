"""Tests in a browser. They are a package, since one browser is for all files of it that run one after the other."""
