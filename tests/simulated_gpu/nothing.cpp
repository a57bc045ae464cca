// libc10_cuda: what others want of it is in libtorch_cuda (simulated_gpu.h).
