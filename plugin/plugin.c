// SPDX-License-Identifier: Apache-2.0
// libnccl-net-gemmar.so: what the library exports. plugin.map lists the names.
#include "transport/table.h"

/* The table lives in transport/; this reference makes the linker take it from the archive. */
extern const struct gemmar_transport_table *const gemmar_plugin_transport;
const struct gemmar_transport_table *const gemmar_plugin_transport = &gemmarTransport_v1;
