// SPDX-License-Identifier: Apache-2.0
// The differences from the specification that a device is allowed; differences.md explains each.
#ifndef GEMMAR_TEST_VERBS_DIFFERENCES_H
#define GEMMAR_TEST_VERBS_DIFFERENCES_H

enum device_kind {
    KIND_HARDWARE, // nothing is allowed
    KIND_RXE,
    KIND_SOFTHCA,
};

// D(ID, which kind of device differs)
// clang-format off
#define GEMMAR_DIFFERENCES(D)                       \
    D(MAX_MSG_SZ_NOT_CHECKED, KIND_RXE)             \
    D(PARTITION_KEY_NOT_CHECKED, KIND_RXE)          \
    D(BAD_LKEY_IS_LOC_QP_OP_ERR, KIND_RXE)          \
    D(LONG_MESSAGE_IS_REM_OP_ERR, KIND_RXE)         \
    D(RECEIVE_POSTED_IN_ERR_STAYS, KIND_RXE)        \
    D(MISALIGNED_ATOMIC_REFUSED_AT_ONCE, KIND_RXE)  \
    D(SENDER_NOT_CHECKED, KIND_RXE)                 \
    D(UNSIGNALED_GIVE_WAY, KIND_RXE)                \
    D(READS_IN_FLIGHT_NOT_CHECKED, KIND_RXE)        \
    D(NO_COMM_EST_EVENT, KIND_RXE)                  \
    D(INLINE_LIST_IS_LOST, KIND_RXE)                \
    D(NO_ACCESS_EVENT, KIND_RXE)                    \
    D(NO_LAST_WQE_EVENT, KIND_RXE)                  \
    D(STOPPED_OWNER_STOPS_WRITES, KIND_SOFTHCA)
// clang-format on

#define GEMMAR_DIFFERENCE_ENUM(id, kind) DIFF_##id,
enum difference { GEMMAR_DIFFERENCES(GEMMAR_DIFFERENCE_ENUM) DIFFERENCES };
#undef GEMMAR_DIFFERENCE_ENUM

#endif
