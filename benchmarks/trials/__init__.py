"""trials: planted programs, in which `kinetoscope try` is compared with the edit that its variant stands for."""
