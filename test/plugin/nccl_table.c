// SPDX-License-Identifier: Apache-2.0
// Finds the table of NCCL's own InfiniBand transport: the reference for behaviour. libnccl.so.2
// keeps its symbol table, so the hidden object is at a known distance from an exported function.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/plugin/net.h"

#define NCCL_VERSION 22809 // its table is of API v11

static void *open_nccl(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    glob_t g;
    if (!lib && glob("/usr/local/cuda*/lib*/libnccl.so.2", 0, NULL, &g) == 0) {
        for (size_t i = 0; !lib && i < g.gl_pathc; i++) {
            lib = dlopen(g.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        }
        globfree(&g);
    }
    return lib;
}

// The value of a symbol in the file's full table, local ones included. 0 when there is none.
static uint64_t find_symbol(const uint8_t *file, const char *name)
{
    const Elf64_Ehdr *h = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Sym *s = (const void *)(file + sections[i].sh_offset);
        const char *text = (const char *)file + sections[sections[i].sh_link].sh_offset;
        for (uint64_t n = sections[i].sh_size / sizeof *s; n-- > 0; s++) {
            if (strcmp(text + s->st_name, name) == 0) {
                return s->st_value;
            }
        }
    }
    return 0;
}

static const void *find_table(void *function)
{
    Dl_info info;
    struct stat st;
    if (!dladdr(function, &info)) {
        return NULL;
    }
    int fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        return NULL;
    }
    const uint8_t *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (file == MAP_FAILED) {
        return NULL;
    }
    uint64_t at = find_symbol(file, "ncclNetIb");
    (void)munmap((void *)(uintptr_t)file, (size_t)st.st_size);
    return at ? (const void *)((const uint8_t *)info.dli_fbase + at) : NULL;
}

const void *net_find_nccl(void **out_lib, const char **out_error, int *out_absent)
{
    int version = 0;
    int (*get_version)(int *) = NULL;
    void *lib = open_nccl();
    *out_absent = 1;
    if (!lib) {
        *out_error = "no libnccl.so.2";
        return NULL;
    }
    *out_lib = lib;
    *(void **)&get_version = dlsym(lib, "ncclGetVersion"); // POSIX spells it so
    if (!get_version || get_version(&version) || version != NCCL_VERSION) {
        *out_error = "another version of libnccl.so.2";
        return NULL;
    }
    const void *table = find_table(*(void **)&get_version);
    if (!table) {
        *out_error = "libnccl.so.2 is stripped";
    }
    return table;
}
