"""Work of devices: kernels, FLOPs, peaks and idle gaps."""
