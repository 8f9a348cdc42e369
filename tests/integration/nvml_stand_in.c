/* Stands in for the driver's library on machines without a GPU: two GPUs, of which the second tells little.
 * The real nvidia-ml-py loads it. Structures and numbers are those of NVIDIA's nvml.h. */

#include <stdint.h>

typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;

static char devices[2];

int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return error == 3 ? "Not Supported" : "Another Error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &devices[index]; return 0; }

int nvmlDeviceGetUtilizationRates(void *device, Utilization *into)
{
    (void)device;
    *into = (Utilization){83, 12};
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *into)
{
    *into = (Memory){80ull << 30, 60ull << 30, 20ull << 30};
    return device == &devices[0] ? 0 : 3; /* not supported */
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    *milliwatts = 412500;
    return device == &devices[0] ? 0 : 3;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    *mhz = which == 1 ? 1980 : 2619;
    return device == &devices[0] ? 0 : 3;
}

int nvmlDeviceGetTemperature(void *device, int which, unsigned *celsius)
{
    (void)which;
    *celsius = 64;
    return device == &devices[0] ? 0 : 15; /* the GPU is lost */
}

typedef struct { unsigned version; int sensor; int celsius; } Temperature;

int nvmlDeviceGetTemperatureV(void *device, Temperature *into)
{
    into->celsius = 64;
    return device == &devices[0] ? 0 : 15;
}
