// STAND-IN for libibverbs.so.1. For tests on machines without an RDMA device; never shipped.
//
// It lists the devices that the environment names, `STANDIN_VERBS=erdma_0,erdma_1!EACCES`, and opens them; one with an error
// after the `!` can not be opened. Nothing can be sent. The symbols have the version that the real ones have, IBVERBS_1.1.

#include "fault.h"
#include <errno.h>

// As in infiniband/verbs.h of rdma-core.
struct ibv_device {
  void *unused_operations[2];
  int node_type, transport_type;
  char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};

// Large enough for all of the real one, of which the first field alone is filled in.
struct ibv_context {
  struct ibv_device *device;
  char rest[1016];
};

static int error_number(const char *name) {
  static const struct {
    const char *name;
    int number;
  } errors[] = {{"EACCES", EACCES}, {"EPERM", EPERM},   {"ENODEV", ENODEV}, {"ENOENT", ENOENT}, {"ENOMEM", ENOMEM},
                {"ENOSYS", ENOSYS}, {"EMFILE", EMFILE}, {"ENXIO", ENXIO},   {"EINVAL", EINVAL}, {"EIO", EIO}};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (strcmp(errors[i].name, name) == 0) return errors[i].number;
  }
  return atoi(name) > 0 ? atoi(name) : EIO;
}

static unsigned list_calls, open_calls;

// One more than needed, for the NULL at the end. An entry `!ENOSYS`, without a name: the list itself can not be had.
EXPORT struct ibv_device **ibv_get_device_list(int *count) {
  int code;
  if (standin_fault("ibv_get_device_list", ++list_calls, NULL, &code)) {
    errno = code;
    return NULL;
  }
  const char *warning = getenv("STANDIN_VERBS_WARNING");
  if (warning != NULL && getenv("IBV_SHOW_WARNINGS") != NULL) fprintf(stderr, "%s\n", warning);
  const char *list = getenv("STANDIN_VERBS");
  if (list == NULL) list = "";
  if (list[0] == '!') {
    errno = error_number(list + 1);
    return NULL;
  }
  struct ibv_device **devices = calloc(strlen(list) + 2, sizeof *devices);
  int found = 0;
  while (*list != 0) {
    size_t entry = strcspn(list, ","), name = strcspn(list, ",!");
    struct ibv_device *device = calloc(1, sizeof *device);
    device->node_type = 1;  // IBV_NODE_CA
    snprintf(device->name, sizeof device->name, "%.*s", (int)name, list);
    snprintf(device->dev_name, sizeof device->dev_name, "uverbs%d", found);
    snprintf(device->ibdev_path, sizeof device->ibdev_path, "/sys/class/infiniband/%s", device->name);
    // Where the real one has the path in sysfs, this one keeps the error.
    if (name < entry) snprintf(device->dev_path, sizeof device->dev_path, "%.*s", (int)(entry - name - 1), list + name + 1);
    devices[found++] = device;
    list += entry;
    if (*list == ',') list++;
  }
  if (count != NULL) *count = found;
  return devices;
}

// The devices themselves stay: an open context still uses its own.
EXPORT void ibv_free_device_list(struct ibv_device **devices) { free(devices); }

EXPORT const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
  int code = 0;
  if (standin_fault("ibv_open_device", ++open_calls, NULL, &code)) {
    errno = code;
    return NULL;
  }
  if (device->dev_path[0] != 0) {
    errno = error_number(device->dev_path);
    return NULL;
  }
  struct ibv_context *context = calloc(1, sizeof *context);
  context->device = device;
  return context;
}

EXPORT int ibv_close_device(struct ibv_context *context) {
  STANDIN_CALL();
  free(context);
  return 0;
}
