// SPDX-License-Identifier: Apache-2.0
// Section "setup": the interface over which peers are met before RDMA can begin.
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_info/doctor.h"
#include "transport/bootstrap.h"

static void hear(void *user, enum gemmar_log_level level, const char *text)
{
    struct gemmar_info *d = user;
    const char *tag = strstr(text, ": ");

    if (level == GEMMAR_LOG_WARN) {
        gemmar_info_problem(&d->report, true,
                            "correct or unset NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY, or bring "
                            "an interface up",
                            "%s", tag != NULL ? tag + 2 : text);
    }
}

void gemmar_info_setup(struct gemmar_info *d)
{
    struct gemmar_logger log = {hear, d, GEMMAR_LOG_WARN};
    struct gemmar_info_report *r = &d->report;
    struct gemmar_bootstrap_address mine;
    char text[GEMMAR_SOCKET_TEXT_BYTES];

    gemmar_info_section(r, "setup", "Set-up between peers (TCP)");
    if (gemmar_bootstrap_address(&d->knobs, &log, &mine) != 0) {
        gemmar_info_unknown(r, "interface");
        gemmar_info_unknown(r, "address");
        return;
    }
    gemmar_info_text(r, "interface", "%s", mine.interface);
    (void)gemmar_socket_address_text(&mine.address, text, sizeof(text));
    text[strcspn(text, "<")] = '\0'; /* any port */
    gemmar_info_text(r, "address", "%s", text);
    if (strcmp(mine.interface, "lo") == 0) {
        gemmar_info_note(r, "lo reaches this host only.");
    }
}
