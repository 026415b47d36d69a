// SPDX-License-Identifier: Apache-2.0
// Set-up of connections: what net_context.c must know of it.
#ifndef GEMMAR_NET_CONNECT_H
#define GEMMAR_NET_CONNECT_H

#include "plugin/net_comm.h"

/* Drop the connects of a context that nobody finished. */
void net_connect_abandon(const struct net_context *context);

#endif
