// SPDX-License-Identifier: Apache-2.0
// A plugin of another build with network APIs v6 to v11, for gemmar_info.
#include <gemmar/transport.h>

#define SHOWN __attribute__((visibility("default")))

extern const struct gemmar_transport_table gemmarTransport_v1;
SHOWN const struct gemmar_transport_table gemmarTransport_v1 = {
    .size = sizeof(struct gemmar_transport_table),
    .version = GEMMAR_TRANSPORT_VERSION,
    .build_id = "another build",
};

#define NET(n)                                                                                     \
    extern const int ncclNetPlugin_v##n;                                                           \
    SHOWN const int ncclNetPlugin_v##n = n
NET(6);
NET(7);
NET(8);
NET(9);
NET(10);
NET(11);
