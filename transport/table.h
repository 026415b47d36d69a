// SPDX-License-Identifier: Apache-2.0
// The one transport of a process, counted by its users, behind the table of transport.h.
#ifndef GEMMAR_TABLE_H
#define GEMMAR_TABLE_H

#include <gemmar/transport.h>

extern const struct gemmar_transport_table gemmarTransport_v1;

#endif
