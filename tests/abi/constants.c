// Prints the sizes and constants that the agent has to know, as the vendors' headers have them: a name, a tab and a number
// a line. Compiled against nccl.h, cuda.h and infiniband/verbs.h; for tests, never shipped.

#include <cuda.h>
#include <infiniband/verbs.h>
#include <nccl.h>
#include <stddef.h>
#include <stdio.h>

#define VALUE(name) printf("%s\t%lld\n", #name, (long long)(name))
#define SIZE(type) printf("sizeof(%s)\t%zu\n", #type, sizeof(type))
#define OFFSET(type, field) printf("offsetof(%s, %s)\t%zu\n", #type, #field, offsetof(type, field))

int main(void) {
  SIZE(ncclUniqueId);
  SIZE(ncclResult_t);
  VALUE(ncclSuccess);
  VALUE(ncclUnhandledCudaError);
  VALUE(ncclSystemError);
  VALUE(ncclInternalError);
  VALUE(ncclInvalidArgument);
  VALUE(ncclInvalidUsage);
  VALUE(ncclRemoteError);
  VALUE(ncclInProgress);
  VALUE(ncclFloat16);
  VALUE(ncclFloat32);
  VALUE(ncclBfloat16);
  VALUE(ncclSum);
  OFFSET(ncclConfig_t, size);
  OFFSET(ncclConfig_t, magic);
  OFFSET(ncclConfig_t, version);
  OFFSET(ncclConfig_t, blocking);

  SIZE(CUdevice);
  SIZE(CUdeviceptr);
  SIZE(CUresult);
  VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  VALUE(CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
  VALUE(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  VALUE(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  VALUE(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
  VALUE(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  VALUE(CU_STREAM_NON_BLOCKING);
  VALUE(CUDA_ERROR_OUT_OF_MEMORY);
  VALUE(CUDA_ERROR_NOT_INITIALIZED);
  VALUE(CUDA_ERROR_STUB_LIBRARY);
  VALUE(CUDA_ERROR_NO_DEVICE);
  VALUE(CUDA_ERROR_INVALID_DEVICE);
  VALUE(CUDA_ERROR_INVALID_CONTEXT);
  VALUE(CUDA_ERROR_INVALID_PTX);
  VALUE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  VALUE(CUDA_ERROR_NOT_FOUND);
  VALUE(CUDA_ERROR_NOT_READY);
  VALUE(CUDA_ERROR_ILLEGAL_ADDRESS);
  VALUE(CUDA_ERROR_NOT_SUPPORTED);
  VALUE(CUDA_ERROR_SYSTEM_NOT_READY);
  VALUE(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  VALUE(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
  VALUE(CUDA_ERROR_UNKNOWN);

  SIZE(struct ibv_device_attr);
  SIZE(struct ibv_port_attr);
  OFFSET(struct ibv_device, name);
  OFFSET(struct ibv_device, dev_name);
  OFFSET(struct ibv_device, dev_path);
  OFFSET(struct ibv_device, ibdev_path);
  SIZE(struct ibv_device);
  OFFSET(struct ibv_context, device);
  return 0;
}
