/* Stands in for the driver's library on machines without a GPU: two GPUs, of which the second tells little.
 * The real nvidia-ml-py loads it. Structures and numbers are those of NVIDIA's nvml.h.
 *
 * Environment variables change the machine: GPUS is the number of GPUs (at most 8), and each of these a list of
 * digits: LOST (no handle), OTHER_MODEL, SPLIT (into instances). With REVERSED, addresses fall as NVML's numbers
 * rise. GPU n is busy for 83 + n percent of the time; the instance MIG-5eed of GPU 0 for 7 percent. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;

static char devices[9];
static char *const instance = &devices[8];

static int is_among(const char *variable, int index)
{
    const char *digits = getenv(variable);
    return digits && index < 8 && strchr(digits, '0' + index);
}

static int number_of(void *device) { return (int)((char *)device - devices); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return error == 3 ? "Not Supported" : "Another Error"; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = getenv("GPUS") ? (unsigned)atoi(getenv("GPUS")) : 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &devices[index];
    return is_among("LOST", (int)index) ? 15 : 0; /* the GPU is lost */
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = instance;
    return strcmp(uuid, "MIG-5eed") ? 6 : 0; /* not found */
}

int nvmlDeviceGetUUID(void *device, char *into, unsigned length)
{
    snprintf(into, length, "GPU-a%d", number_of(device));
    return 0;
}

int nvmlDeviceGetName(void *device, char *into, unsigned length)
{
    snprintf(into, length, "%s", is_among("OTHER_MODEL", number_of(device)) ? "T4" : "H100");
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    *current = *pending = is_among("SPLIT", number_of(device)) ? 1 : 0;
    return 0;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} Pci;

int nvmlDeviceGetPciInfo_v3(void *device, Pci *into)
{
    int number = number_of(device);
    memset(into, 0, sizeof *into);
    into->bus = (unsigned)(getenv("REVERSED") ? 64 - number : 16 + number);
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *into)
{
    *into = (Utilization){device == instance ? 7 : 83 + (unsigned)number_of(device), 12};
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
