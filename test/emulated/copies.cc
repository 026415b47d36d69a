// SPDX-License-Identifier: Apache-2.0
// Emulated GPUs: the copy engine and tensor maps.
#include "test/emulated/machine.h"

#define BOX_COLUMNS 64

/* What the copy engine has to do. */
struct copy {
    cta *home;
    uint32_t at, bytes;
    uint32_t mask, bar;                  /* a load's */
    std::function<void(uint8_t *)> load; /* NULL: a store */
    std::function<void(const uint8_t *)> store;
    std::shared_ptr<group> of;
    fiber *owner;              /* of a store */
    std::vector<uint8_t> read; /* by a store, and not written yet */
    bool is_read;
};

static std::vector<copy *> copies;

static void count_copy(copy *c, int step)
{
    c->home->grid->copies += (uint32_t)step;
    c->home->copies += (uint32_t)step;
}

void emulated_async_load(uint32_t dst, uint32_t mask, uint32_t bar, uint32_t bytes,
                         std::function<void(uint8_t *)> read)
{
    copy *c = new copy();

    if (dst % 16 != 0 || bytes % 16 != 0 || dst + bytes > EMULATED_SHARED_BYTES) {
        emulated_fail("a load that is not aligned, or too long");
    }
    c->home = emulated_current->home;
    c->at = dst;
    c->bytes = bytes;
    c->mask = mask;
    c->bar = bar;
    c->load = read;
    for (uint32_t i = 0; i < CLUSTER; i++) {
        if ((mask >> i & 1) != 0) { /* from now on it may be anything */
            memset(emulated_in_cluster(c->home, i)->shared + dst, 0xff, bytes);
        }
    }
    count_copy(c, 1);
    copies.push_back(c);
}

static bool overlap(const range &a, const range &b)
{
    return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

void emulated_shared_written(uint32_t address, uint32_t bytes)
{
    for (const copy *c : copies) {
        if (c->home == emulated_current->home && !c->load && !c->is_read &&
            overlap({address, bytes}, {c->at, c->bytes})) {
            emulated_fail("written before a bulk store has read it");
        }
    }
    emulated_current->unfenced.push_back({address, bytes});
}

static void expect_fenced(uint32_t address, uint32_t bytes)
{
    for (const fiber *f : emulated_current->home->fibers) {
        for (const range &r : f->unfenced) {
            if (overlap(r, {address, bytes})) {
                emulated_fail("a store of shared memory that its writer has not fenced");
            }
        }
    }
}

void emulated_async_store(uint32_t src, uint32_t bytes, std::function<void(const uint8_t *)> write)
{
    copy *c = new copy();

    if (src % 16 != 0 || bytes % 16 != 0 || src + bytes > EMULATED_SHARED_BYTES) {
        emulated_fail("a store that is not aligned, or too long");
    }
    expect_fenced(src, bytes);
    if (emulated_current->open == NULL) {
        emulated_current->open = std::make_shared<group>();
    }
    c->home = emulated_current->home;
    c->at = src;
    c->bytes = bytes;
    c->store = write;
    c->of = emulated_current->open;
    c->of->reads++;
    c->of->writes++;
    c->owner = emulated_current;
    count_copy(c, 1);
    copies.push_back(c);
}

static bool bulk_done(const fiber *f)
{
    for (size_t i = 0; i + f->bulk_pending < f->committed.size(); i++) {
        const group &g = *f->committed[i];

        if (g.reads > 0 || (!f->bulk_reads && g.writes > 0)) {
            return false;
        }
    }
    return true;
}

static void bulk_moved(fiber *f)
{
    if (f->bulk && bulk_done(f)) {
        f->bulk = false;
        emulated_wake(f);
    }
}

void emulated_bulk_commit(void)
{
    if (emulated_current->open != NULL) {
        emulated_current->committed.push_back(emulated_current->open);
        emulated_current->open = NULL;
    }
    while (!emulated_current->committed.empty() &&
           emulated_current->committed.front()->writes == 0) {
        emulated_current->committed.pop_front();
    }
}

void emulated_bulk_wait(uint32_t pending, bool reads_only)
{
    emulated_current->bulk_pending = pending;
    emulated_current->bulk_reads = reads_only;
    if (!bulk_done(emulated_current)) {
        emulated_current->bulk = true;
        emulated_block("the copy engine");
    }
}

static void load_step(copy *c)
{
    for (uint32_t to = 0; to < CLUSTER; to++) {
        cta *there = emulated_in_cluster(c->home, to);

        if ((c->mask >> to & 1) == 0) {
            continue;
        }
        if (there->living == 0) {
            emulated_fail("a load into a CTA that has ended");
        }
        c->load(there->shared + c->at);
        emulated_mbarrier_complete(there, c->bar, c->bytes);
    }
}

/* One copy: all of a load, half of a store. */
void emulated_copy_step(void)
{
    uint32_t i = emulated_chance((uint32_t)copies.size());
    copy *c = copies[i];
    bool ends = c->load || c->is_read;

    if (c->load) {
        load_step(c);
        c->home->copies--;
    } else if (!c->is_read) {
        c->read.assign(c->home->shared + c->at, c->home->shared + c->at + c->bytes);
        c->is_read = true;
        c->of->reads--;
        c->home->copies--;
        bulk_moved(c->owner);
    } else {
        std::shared_ptr<std::vector<uint8_t>> data =
            std::make_shared<std::vector<uint8_t>>(std::move(c->read));
        std::function<void(const uint8_t *)> store = c->store;

        emulated_store_copied(c->owner, [=] { store(data->data()); });
        c->of->writes--;
        bulk_moved(c->owner);
    }
    if (ends) {
        c->home->grid->copies--;
        delete emulated_take(copies, i);
    }
}

bool emulated_copies_wait(void)
{
    return !copies.empty();
}

/* Element (row, column) of the box at (x, y); NULL: it lies outside. */
static uint16_t *element(const emulated_map &m, int32_t x, int32_t y, uint32_t row, uint32_t column)
{
    int64_t r = (int64_t)y + row, c = (int64_t)x + column;

    if (r < 0 || r >= (int64_t)m.rows || c < 0 || c >= (int64_t)m.columns) {
        return NULL;
    }
    return (uint16_t *)((char *)m.base + r * (int64_t)m.row_bytes) + c;
}

void emulated_tensor_load(const emulated_map &m, int32_t x, int32_t y, uint32_t dst,
                          uint8_t *shared)
{
    for (uint32_t r = 0; r < m.box_rows; r++) {
        for (uint32_t c = 0; c < BOX_COLUMNS; c++) {
            const uint16_t *from = element(m, x, y, r, c);
            uint32_t at = emulated_swizzle(dst + r * 128 + c * 2) - dst;

            *(uint16_t *)(shared + at) = from != NULL ? *from : (uint16_t)0;
        }
    }
}

void emulated_tensor_store(const emulated_map &m, int32_t x, int32_t y, uint32_t src,
                           const uint8_t *shared)
{
    for (uint32_t r = 0; r < m.box_rows; r++) {
        for (uint32_t c = 0; c < BOX_COLUMNS; c++) {
            uint16_t *to = element(m, x, y, r, c);

            if (to != NULL) {
                *to = *(const uint16_t *)(shared + (emulated_swizzle(src + r * 128 + c * 2) - src));
            }
        }
    }
}
