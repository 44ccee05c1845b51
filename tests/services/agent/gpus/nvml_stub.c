/* A stand-in for the driver's libnvidia-ml.so.1: the functions that hopyard calls, by way of nvidia-ml-py.
 *
 * What it answers stands in the file that NVML_STUB names, a line a GPU:
 *   uuid|name|memory|used|utilisation|remap pending|remap failed|mig|lost|pid,pid...
 * and, after a line that holds "events", a line an error: uuid|xid. Read errors are counted in NVML_STUB.seen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char uuid[96]; char name[96]; unsigned long long memory, used;
  unsigned gpu, pending, failed, mig, lost, pids[16], count; } Gpu;
typedef struct { char uuid[96]; unsigned long long code; } Error;
static Gpu gpus[64]; static unsigned count; static Error errors[64]; static unsigned reported;

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT = 7, TIMEOUT = 10,
       LOST = 15 };

static void load(void) {
  FILE *f = fopen(getenv("NVML_STUB"), "r"); char line[1024], pids[512]; int events = 0;
  count = reported = 0;
  while (f && fgets(line, sizeof line, f)) {
    if (!strncmp(line, "events", 6)) { events = 1; continue; }
    if (events) {
      if (sscanf(line, "%95[^|]|%llu", errors[reported].uuid, &errors[reported].code) == 2) reported++;
      continue;
    }
    Gpu *g = &gpus[count]; memset(g, 0, sizeof *g); pids[0] = 0;
    if (sscanf(line, "%95[^|]|%95[^|]|%llu|%llu|%u|%u|%u|%u|%u|%511[^\n]", g->uuid, g->name, &g->memory, &g->used,
               &g->gpu, &g->pending, &g->failed, &g->mig, &g->lost, pids) < 9) continue;
    for (char *p = strtok(pids, ","); p; p = strtok(NULL, ",")) g->pids[g->count++] = (unsigned)atoi(p);
    count++;
  }
  if (f) fclose(f);
}

static unsigned long long seen(int next) {
  char path[1024]; unsigned long long n = 0; FILE *f;
  snprintf(path, sizeof path, "%s.seen", getenv("NVML_STUB"));
  if ((f = fopen(path, "r"))) { if (fscanf(f, "%llu", &n) != 1) n = 0; fclose(f); }
  if (next && (f = fopen(path, "w"))) { fprintf(f, "%llu", n + 1); fclose(f); }
  return n;
}

int nvmlInit_v2(void) { return getenv("NVML_STUB") ? SUCCESS : 9; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "error of the stub"; }
int nvmlDeviceGetCount_v2(unsigned *n) { load(); *n = count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  load();
  if (index >= count) return INVALID;
  *device = (void *)(unsigned long)(index + 1);
  return gpus[index].lost ? LOST : SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  load();
  for (unsigned i = 0; i < count; i++)
    if (!strcmp(gpus[i].uuid, uuid)) { *device = (void *)(unsigned long)(i + 1); return gpus[i].lost ? LOST : SUCCESS; }
  return NOT_FOUND;
}
static Gpu *of(void *device) { return &gpus[(unsigned long)device - 1]; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
  if (!device) return INVALID;
  snprintf(text, length, "%s", of(device)->uuid); return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
  snprintf(text, length, "%s", of(device)->name); return SUCCESS;
}
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(void *device, Memory *m) {
  if (!of(device)->memory) return NOT_SUPPORTED; /* as of a GPU that shares the machine's memory */
  m->total = of(device)->memory; m->used = of(device)->used; m->free = m->total - m->used; return SUCCESS;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
int nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *m) {
  if (!of(device)->memory) return NOT_SUPPORTED;
  m->total = of(device)->memory; m->used = of(device)->used; return SUCCESS;
}
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, Process *found) {
  Gpu *g = of(device);
  if (g->mig) return NO_PERMISSION; /* as for an account without rights */
  if (*n < g->count) { *n = g->count; return INSUFFICIENT; }
  for (unsigned i = 0; i < g->count; i++) found[i].pid = g->pids[i];
  *n = g->count;
  return SUCCESS;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
  *a = *b = 0; *pending = of(device)->pending; *failed = of(device)->failed; return SUCCESS;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending) {
  (void)device; (void)pending; return NOT_SUPPORTED;
}
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
  *now = *later = of(device)->mig; return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
  rates[0] = of(device)->gpu; rates[1] = 0; return SUCCESS;
}
int nvmlEventSetCreate(void **set) { *set = (void *)1; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
  (void)device; (void)set; return types == 8 ? SUCCESS : INVALID;
}
typedef struct { void *device; unsigned long long type, data; unsigned instance, compute; } Event;
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout) {
  (void)set; (void)timeout; load();
  unsigned long long next = seen(0);
  if (next >= reported) return TIMEOUT;
  seen(1);
  event->device = NULL; event->type = 8; event->data = errors[next].code;
  for (unsigned i = 0; i < count; i++)
    if (!strcmp(gpus[i].uuid, errors[next].uuid)) event->device = (void *)(unsigned long)(i + 1);
  return SUCCESS;
}
