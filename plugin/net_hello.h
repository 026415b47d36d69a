// SPDX-License-Identifier: Apache-2.0
// The handle and the hello: making and judging them.
#ifndef GEMMAR_NET_HELLO_H
#define GEMMAR_NET_HELLO_H

#include "plugin/net_comm.h"

void net_handle_fill(struct net_handle *out, const struct gemmar_socket_address *address,
                     uint64_t cookie, uint32_t rails, uint32_t queue_pairs);

/* 0, or -EPROTO with the reason in `why`. */
int net_handle_check(const struct net_handle *handle, struct gemmar_socket_address *out_address,
                     char *why, size_t why_bytes);

/* A peer's text, cut at `bytes` with the end, for a log: what is not printable is a question mark.
 */
void net_hello_text(char *out, size_t bytes, const char *text, size_t text_bytes);

/* This build, zero padded; it may fill all of `out`. */
void net_hello_build(char *out, size_t bytes);

/* Is it ours, of this build, from the other end, and of sane counts? 0; -EBADMSG: not from this
 * plugin at all; -EPROTO: from this plugin and not acceptable. The reason in `why`. */
int net_hello_check(const struct net_wire_hello *hello, enum net_wire_end from, char *why,
                    size_t why_bytes);

#endif
