"""Tests of the pages of `kinetoscope view`."""
