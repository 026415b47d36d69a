// SPDX-License-Identifier: Apache-2.0
// The handle and the hello.
#include "plugin/net_hello.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/build_id.h"

void net_hello_build(char *out, size_t bytes)
{
    memset(out, 0, bytes);
    memcpy(out, gemmar_build_id, strnlen(gemmar_build_id, bytes));
}

void net_hello_text(char *out, size_t bytes, const char *text, size_t text_bytes)
{
    size_t n = 0;

    for (; n + 1 < bytes && n < text_bytes && text[n] != '\0'; n++) {
        out[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    }
    out[n] = '\0';
}

static bool same_build(const char *theirs, size_t bytes, char *why, size_t why_bytes)
{
    char mine[32], shown[33];

    net_hello_build(mine, sizeof(mine));
    if (memcmp(mine, theirs, bytes) == 0) {
        return true;
    }
    net_hello_text(shown, sizeof(shown), theirs, bytes);
    (void)snprintf(why, why_bytes, "it is of build %s, this is %.*s: use one build everywhere",
                   shown, (int)sizeof(mine), mine);
    return false;
}

void net_handle_fill(struct net_handle *out, const struct gemmar_socket_address *address,
                     uint64_t cookie, uint32_t rails, uint32_t queue_pairs)
{
    memset(out, 0, sizeof(*out));
    out->magic = NET_WIRE_MAGIC;
    out->version = NET_WIRE_VERSION;
    out->rails = (uint16_t)rails;
    out->queue_pairs = (uint16_t)queue_pairs;
    out->cookie = cookie;
    if (address->any.sa_family == AF_INET) {
        out->family = 4;
        out->port = ntohs(address->in.sin_port);
        memcpy(out->address, &address->in.sin_addr, 4);
    } else {
        out->family = 6;
        out->port = ntohs(address->in6.sin6_port);
        out->scope = address->in6.sin6_scope_id;
        memcpy(out->address, &address->in6.sin6_addr, 16);
    }
    net_hello_build(out->build, sizeof(out->build));
}

static int handle_address(const struct net_handle *h, struct gemmar_socket_address *out)
{
    memset(out, 0, sizeof(*out));
    if (h->family == 4) {
        out->in.sin_family = AF_INET;
        out->in.sin_port = htons(h->port);
        memcpy(&out->in.sin_addr, h->address, 4);
        out->length = sizeof(out->in);
        return 0;
    }
    if (h->family == 6) {
        out->in6.sin6_family = AF_INET6;
        out->in6.sin6_port = htons(h->port);
        out->in6.sin6_scope_id = h->scope;
        memcpy(&out->in6.sin6_addr, h->address, 16);
        out->length = sizeof(out->in6);
        return 0;
    }
    return -EPROTO;
}

int net_handle_check(const struct net_handle *h, struct gemmar_socket_address *out_address,
                     char *why, size_t why_bytes)
{
    if (h->magic != NET_WIRE_MAGIC) {
        (void)snprintf(why, why_bytes,
                       "the handle is not from this plugin (magic 0x%llx): the peer runs another "
                       "network; set NCCL_NET_PLUGIN=gemmar on all ranks",
                       (unsigned long long)h->magic);
        return -EPROTO;
    }
    if (h->version != NET_WIRE_VERSION) {
        (void)snprintf(why, why_bytes, "the handle has version %u, this is %u", h->version,
                       NET_WIRE_VERSION);
        return -EPROTO;
    }
    if (!same_build(h->build, sizeof(h->build), why, why_bytes)) {
        return -EPROTO;
    }
    if (h->rails == 0 || h->rails > NET_MAX_RAILS || h->queue_pairs == 0 ||
        handle_address(h, out_address) != 0) {
        (void)snprintf(why, why_bytes, "the handle is damaged");
        return -EPROTO;
    }
    return 0;
}

int net_hello_check(const struct net_wire_hello *h, enum net_wire_end from, char *why,
                    size_t why_bytes)
{
    char text[sizeof(h->text) + 1];

    if (h->magic != NET_WIRE_MAGIC) {
        (void)snprintf(why, why_bytes, "it is not this plugin (it began with 0x%llx)",
                       (unsigned long long)h->magic);
        return -EBADMSG;
    }
    if (h->version != NET_WIRE_VERSION || h->bytes != sizeof(*h)) {
        (void)snprintf(why, why_bytes, "it speaks version %u, this is %u", h->version,
                       NET_WIRE_VERSION);
        return -EPROTO;
    }
    if (!same_build(h->build, sizeof(h->build), why, why_bytes)) {
        return -EPROTO;
    }
    if (h->status != 0) {
        net_hello_text(text, sizeof(text), h->text, sizeof(h->text));
        (void)snprintf(why, why_bytes, "it refused: %s", text);
        return -EPROTO;
    }
    if (h->end != (uint32_t)from || h->rails == 0 || h->rails > NET_MAX_RAILS || h->lanes == 0 ||
        h->lanes > NET_MAX_LANES) {
        (void)snprintf(why, why_bytes, "its hello is damaged");
        return -EPROTO;
    }
    return 0;
}
