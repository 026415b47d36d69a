// SPDX-License-Identifier: Apache-2.0
// The strict .npy reader.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/npy.h"

static char why[512];
static uint8_t file[4096];
static size_t file_bytes;
static struct gemmar_npy npy;

/* A file with this dictionary and `data` bytes of elements. */
static void make(int version, const char *dictionary, size_t data)
{
    size_t length = strlen(dictionary), start = version == 1 ? 10 : 12;

    memset(file, 0, sizeof(file));
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + start, dictionary, length);
    file_bytes = start + length + data;
}

static int parse(void)
{
    why[0] = '\0';
    return gemmar_npy_parse(file, file_bytes, file_bytes, &npy, why, sizeof(why));
}

START_TEST(what_numpy_writes_is_read)
{
    make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n", 48);
    ck_assert_msg(parse() == 0, "%s", why);
    ck_assert_int_eq(npy.type, GEMMAR_NPY_F4);
    ck_assert_int_eq(npy.rows, 3);
    ck_assert_int_eq(npy.columns, 4);
    ck_assert_uint_eq(npy.data_bytes, 48);
    ck_assert_uint_eq(npy.data_offset, file_bytes - 48);
    make(2, "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 5)}\n", 10);
    ck_assert_msg(parse() == 0, "%s", why);
    ck_assert_int_eq(npy.type, GEMMAR_NPY_F2);
    make(1, "{\"shape\":(0,7),\"fortran_order\":False,\"descr\":\"<u2\"}", 0);
    ck_assert_msg(parse() == 0, "%s", why);
    ck_assert_int_eq(npy.type, GEMMAR_NPY_U2);
}
END_TEST

START_TEST(wrong_files_are_refused_with_their_fault)
{
    static const struct {
        int version;
        const char *dictionary;
        size_t data;
        const char *fault;
    } bad[] = {
        {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1), }", 8, "<f8"},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1, 1), }", 4, ">f4"},
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", 4, "column-major"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 16, "1 dimensions"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4, "0 dimensions"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1), }", 4, "3 dimensions"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 15, "15 bytes"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 17, "17 bytes"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 2), }", 16, "dictionary"},
        {1, "{'descr': '<f4', 'shape': (2, 2), }", 16, "dictionary"},
        {1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 16,
         "dictionary"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), } x", 16, "dictionary"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }", 16,
         "dictionary"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1099511627776), }",
         0, "too large"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1), }", 0,
         "dictionary"},
        {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }", 4, "version 3"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        make(bad[i].version, bad[i].dictionary, bad[i].data);
        npy.rows = 77;
        ck_assert_int_eq(parse(), -EINVAL);
        ck_assert_msg(strstr(why, bad[i].fault) != NULL, "%s: %s", bad[i].dictionary, why);
        ck_assert_int_eq(npy.rows, 77);
    }
}
END_TEST

START_TEST(every_cut_of_a_file_is_refused)
{
    make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 48);
    for (size_t n = 0; n < file_bytes; n++) {
        uint8_t *exact = malloc(n + 1); /* for AddressSanitizer and valgrind */

        memcpy(exact, file, n);
        ck_assert_int_eq(gemmar_npy_parse(exact, n, n, &npy, why, sizeof(why)), -EINVAL);
        free(exact);
    }
}
END_TEST

START_TEST(elements_are_read_from_disk)
{
    char path[] = "/tmp/gemmar-npy.XXXXXX";
    float data[12];
    int fd = mkstemp(path);

    make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 48);
    for (int i = 0; i < 12; i++) {
        float x = (float)i;

        memcpy(file + file_bytes - 48 + 4 * i, &x, 4);
    }
    ck_assert_int_eq(write(fd, file, file_bytes), (ssize_t)file_bytes);
    (void)close(fd);
    ck_assert_int_eq(gemmar_npy_open(path, &npy, why, sizeof(why)), 0);
    ck_assert_int_eq(gemmar_npy_read(path, &npy, data, why, sizeof(why)), 0);
    ck_assert(data[11] == 11.0f);
    ck_assert_int_eq(truncate(path, (off_t)file_bytes - 1), 0);
    ck_assert_int_eq(gemmar_npy_read(path, &npy, data, why, sizeof(why)), -EIO);
    ck_assert_int_eq(gemmar_npy_open(path, &npy, why, sizeof(why)), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, path));
    (void)unlink(path);
    ck_assert_int_eq(gemmar_npy_open(path, &npy, why, sizeof(why)), -ENOENT);
    ck_assert_int_ne(gemmar_npy_open("/tmp", &npy, why, sizeof(why)), 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_numpy_writes_is_read, wrong_files_are_refused_with_their_fault,
        every_cut_of_a_file_is_refused, elements_are_read_from_disk, NULL};

    return tap_run("npy", tests);
}
