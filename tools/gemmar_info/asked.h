// SPDX-License-Identifier: Apache-2.0
// Which library NCCL loads for NCCL_NET_PLUGIN.
#ifndef GEMMAR_INFO_ASKED_H
#define GEMMAR_INFO_ASKED_H

struct gemmar_info_asked {
    void *handle;  /* of this plugin, for dlsym(); NULL: NCCL does not come to it */
    char why[512]; /* then: the reason */
};

/* `text`: a value of NCCL_NET_PLUGIN, tried as NCCL 2.27 and newer do. Libraries stay open. */
void gemmar_info_asked_find(const char *text, struct gemmar_info_asked *out);

#endif
