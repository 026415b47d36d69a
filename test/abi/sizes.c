// SPDX-License-Identifier: Apache-2.0
// Sizes and places of the public structs: a change breaks callers that were built before it.
#include <assert.h>
#include <stddef.h>

#include <gemmar/fifo.h>
#include <gemmar/gemmar.h>
#include <gemmar/transport.h>

#define PLACE(type, member, offset)                                                                \
    static_assert(offsetof(type, member) == (offset), #type "." #member " moved")
#define SIZE(type, bytes) static_assert(sizeof(type) == (bytes), #type " changed its size")

SIZE(gemmarResult_t, 4);
SIZE(gemmarConfig_t, 80);
PLACE(gemmarConfig_t, magic, 8);
PLACE(gemmarConfig_t, algo, 16);
PLACE(gemmarConfig_t, check, 44);
PLACE(gemmarConfig_t, log, 48);
PLACE(gemmarConfig_t, strategy, 64);
PLACE(gemmarConfig_t, reserved, 76);
SIZE(gemmarStrategy_t, 4);
SIZE(gemmarHostBootstrap_t, 40);
PLACE(gemmarHostBootstrap_t, allGather, 16);
PLACE(gemmarHostBootstrap_t, node, 32);
SIZE(gemmarCommInfo_t, 88);
PLACE(gemmarCommInfo_t, epoch, 40);
PLACE(gemmarCommInfo_t, chunks, 80);
SIZE(gemmarFusedArgs_t, 104);
PLACE(gemmarFusedArgs_t, M, 40);
PLACE(gemmarFusedArgs_t, alpha, 96);
static_assert((int)gemmarRemoteError == 6, "ncclRemoteError");
static_assert((int)gemmarBfloat16 == 9, "ncclBfloat16");

SIZE(struct gemmar_fifo_command, 16);
SIZE(struct gemmar_fifo_ring, 48);
SIZE(struct gemmar_transport_settings, 24);
SIZE(struct gemmar_transport_device, 368);
SIZE(struct gemmar_memory, 32);
SIZE(struct gemmar_route_settings, 72);
SIZE(struct gemmar_channel_settings, 160);
SIZE(struct gemmar_transport_error, 568);
SIZE(struct gemmar_channel_counters, 96);
SIZE(struct gemmar_transport_table, 136);

int main(void)
{
    return 0;
}
