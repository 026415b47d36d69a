// SPDX-License-Identifier: Apache-2.0
// The network and a GPU: memory of the GPU that the NIC reaches, and memory of the host that the
// GPU reaches.
#include <cuda.h>
#include <errno.h>
#include <unistd.h>

#include "kernels/gpu.h"

#define BUS_ID_BYTES 32

static int failed(struct gemmarComm *comm, cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess) {
        return 0;
    }
    gemmar_warn(&comm->log, "network_gpu: rank %u: %s: %s", comm->place.rank, what,
                cudaGetErrorString(rc));
    return rc == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

void gemmar_gpu_find_place(struct gemmarComm *comm)
{
    char bus[BUS_ID_BYTES] = "";

    if (cudaDeviceGetPCIBusId(bus, sizeof(bus), comm->gpu->device) == cudaSuccess) {
        gemmar_pci_find("", bus, &comm->near);
    }
    gemmar_info(&comm->log, "network_gpu: rank %u: GPU %d (%s) is at %s, NUMA node %d",
                comm->place.rank, comm->gpu->device, bus,
                comm->near.path[0] != '\0' ? comm->near.path : "no place that sysfs shows",
                comm->near.numa_node);
}

/* A dma-buf of whole pages of device memory; -1: the driver has none, and the NIC's driver may know
 * the address itself (peer memory). */
static int export_dmabuf(const struct gemmar_gpu *gpu, void *base, uint64_t bytes)
{
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*export)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int supported = 0, fd = -1;

    if (!gemmar_gpu_driver_function("cuDeviceGetAttribute", 12000, &attribute) ||
        !gemmar_gpu_driver_function("cuMemGetHandleForAddressRange", 12000, &export) ||
        attribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, gpu->device) != CUDA_SUCCESS ||
        supported == 0) {
        return -1;
    }
    if (export(&fd, (CUdeviceptr)(uintptr_t)base, (bytes + page - 1) / page * page,
               CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS) {
        return -1;
    }
    return fd;
}

int gemmar_gpu_net_memory(struct gemmarComm *comm, struct gemmar_workspace *w,
                          struct gemmar_memory *out)
{
    int before = gemmar_gpu_enter(comm->gpu->device);

    *out = (struct gemmar_memory){.address = w->memory,
                                  .length = w->layout.bytes,
                                  .dmabuf_fd = export_dmabuf(comm->gpu, w->memory, w->layout.bytes),
                                  .is_gpu = 1};
    gemmar_gpu_leave(comm->gpu->device, before);
    gemmar_info(&comm->log, "network_gpu: rank %u: %s", comm->place.rank,
                out->dmabuf_fd >= 0 ? "the workspace is given to the NIC as a dma-buf"
                                    : "no dma-buf of the workspace: the NIC is given its address");
    return 0;
}

int gemmar_gpu_map(struct gemmarComm *comm, void *host, uint64_t bytes, void **out_seen)
{
    int before = gemmar_gpu_enter(comm->gpu->device);
    cudaError_t rc =
        cudaHostRegister(host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);

    if (rc == cudaSuccess) {
        rc = cudaHostGetDevicePointer(out_seen, host, 0);
        if (rc != cudaSuccess) {
            (void)cudaHostUnregister(host); /* it was registered just now */
        }
    }
    gemmar_gpu_leave(comm->gpu->device, before);
    return failed(comm, rc, "mapping host memory into the GPU");
}

void gemmar_gpu_unmap(struct gemmarComm *comm, void *host)
{
    int before = gemmar_gpu_enter(comm->gpu->device);

    (void)cudaHostUnregister(host); /* no call uses it any more */
    gemmar_gpu_leave(comm->gpu->device, before);
}

int gemmar_gpu_upload(struct gemmarComm *comm, const void *table, uint64_t bytes, void **out_seen)
{
    struct gemmar_gpu *gpu = comm->gpu;
    int before = gemmar_gpu_enter(gpu->device);
    void *seen = NULL;
    cudaError_t rc = cudaMalloc(&seen, bytes);

    if (rc == cudaSuccess) {
        rc = cudaMemcpyAsync(seen, table, bytes, cudaMemcpyHostToDevice, gpu->stream);
    }
    if (rc == cudaSuccess) {
        rc = gemmar_gpu_wait_stream(gpu->stream, comm->settings.timeout_ns);
    }
    if (rc != cudaSuccess) {
        (void)cudaFree(seen);
    }
    gemmar_gpu_leave(gpu->device, before);
    *out_seen = seen;
    return failed(comm, rc, "the table of windows");
}

void gemmar_gpu_discard(struct gemmarComm *comm, void *seen)
{
    int before = gemmar_gpu_enter(comm->gpu->device);

    (void)cudaFree(seen);
    gemmar_gpu_leave(comm->gpu->device, before);
}

int gemmar_gpu_pushed(struct gemmarComm *comm, const struct gemmar_workspace *w, uint64_t *out)
{
    return failed(comm, gemmar_gpu_read_word(comm, &w->words->ticket, out), "reading the ticket");
}
