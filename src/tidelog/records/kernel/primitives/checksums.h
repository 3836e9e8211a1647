/* CRC-32C and CRC-32 for crc.pxd: by the processor's own instructions where it has them, else by tables.

   tidelog_checksums_init() must have run once before the others; after that nothing here changes, so threads may share it.

   A CRC is taken 8 bytes at a time, and each such step waits for the one before. On x86, where a step takes three cycles but
   one can begin in each, three pieces of the data are therefore summed side by side and joined afterwards. Joining needs the
   CRC that a sum would have become had as many zero bytes followed as the next piece is long; this is linear in the sum's
   bits, so four tables of 256 give it. Two lengths of piece are enough: a small batch and a large one. */

#ifndef TIDELOG_CHECKSUMS_H
#define TIDELOG_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define TIDELOG_X86 1
#include <nmmintrin.h>
#elif defined(__GNUC__) && defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ \
    && (defined(__linux__) || defined(__ARM_FEATURE_CRC32))
#define TIDELOG_ARM 1
#ifndef __ARM_FEATURE_CRC32
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif
#endif

enum { TIDELOG_BY_TABLE = 0, TIDELOG_BY_SSE42 = 1, TIDELOG_BY_ARMV8 = 2 };

#define TIDELOG_CRC32C_POLYNOMIAL 0x82F63B78u
#define TIDELOG_CRC32_POLYNOMIAL 0xEDB88320u
#define TIDELOG_SHORT_PIECE 256
#define TIDELOG_LONG_PIECE 2048

static uint32_t tidelog_crc32c_table[8][256];
static uint32_t tidelog_crc32_table[8][256];
static uint32_t tidelog_short_zeros[4][256];
static uint32_t tidelog_long_zeros[4][256];
static int tidelog_implementation = TIDELOG_BY_TABLE;

/* --- by tables, eight bytes a step ------------------------------------------------------------------------------------ */

static void tidelog_fill_table(uint32_t table[8][256], uint32_t polynomial)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        table[0][i] = crc;
    }
    for (int step = 1; step < 8; step++)
        for (uint32_t i = 0; i < 256; i++)
            table[step][i] = table[step - 1][i] >> 8 ^ table[0][table[step - 1][i] & 255];
}

static uint32_t tidelog_crc_by_table(uint32_t table[8][256], uint32_t crc, const uint8_t *data, size_t length)
{
    crc = ~crc;
    for (; length >= 8; data += 8, length -= 8)
        crc = table[7][(crc ^ data[0]) & 255] ^ table[6][(crc >> 8 ^ data[1]) & 255] ^ table[5][(crc >> 16 ^ data[2]) & 255]
            ^ table[4][crc >> 24 ^ data[3]] ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    for (; length; data++, length--)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 255];
    return ~crc;
}

/* What each of a CRC's four bytes becomes when `zeros` zero bytes follow. */
static void tidelog_fill_zeros(uint32_t table[4][256], int zeros)
{
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (int i = 0; i < zeros; i++)
            crc = crc >> 8 ^ tidelog_crc32c_table[0][crc & 255];
        for (int i = 0; i < 256; i++)
            if (i >> (bit & 7) & 1)
                table[bit >> 3][i] ^= crc;
    }
}

/* --- by the processor ------------------------------------------------------------------------------------------------- */

#ifdef TIDELOG_X86

static inline uint64_t tidelog_append_zeros(uint32_t table[4][256], uint64_t crc)
{
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24 & 255];
}

static inline uint64_t tidelog_load(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

__attribute__((target("sse4.2")))
static inline uint64_t tidelog_three_pieces(uint64_t crc, const uint8_t *data, size_t piece, uint32_t zeros[4][256])
{
    uint64_t second = 0, third = 0;
    for (const uint8_t *end = data + piece; data < end; data += 8) {
        crc = _mm_crc32_u64(crc, tidelog_load(data));
        second = _mm_crc32_u64(second, tidelog_load(data + piece));
        third = _mm_crc32_u64(third, tidelog_load(data + 2 * piece));
    }
    return tidelog_append_zeros(zeros, tidelog_append_zeros(zeros, crc) ^ second) ^ third;
}

__attribute__((target("sse4.2")))
static uint32_t tidelog_crc32c_by_sse42(uint32_t begin, const uint8_t *data, size_t length)
{
    uint64_t crc = ~begin;
    for (; length >= 3 * TIDELOG_LONG_PIECE; data += 3 * TIDELOG_LONG_PIECE, length -= 3 * TIDELOG_LONG_PIECE)
        crc = tidelog_three_pieces(crc, data, TIDELOG_LONG_PIECE, tidelog_long_zeros);
    for (; length >= 3 * TIDELOG_SHORT_PIECE; data += 3 * TIDELOG_SHORT_PIECE, length -= 3 * TIDELOG_SHORT_PIECE)
        crc = tidelog_three_pieces(crc, data, TIDELOG_SHORT_PIECE, tidelog_short_zeros);
    for (; length >= 8; data += 8, length -= 8)
        crc = _mm_crc32_u64(crc, tidelog_load(data));
    for (; length; data++, length--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}

#endif

#ifdef TIDELOG_ARM

/* Written out, because compilers differ in when they let the intrinsics be used. */
#define TIDELOG_ARM_STEP(instruction, operand, crc, data) \
    __asm__(".arch_extension crc\n\t" instruction " %w0, %w0, %" operand "1" : "+r"(crc) : "r"(data))

static uint32_t tidelog_crc32c_by_armv8(uint32_t crc, const uint8_t *data, size_t length)
{
    crc = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        TIDELOG_ARM_STEP("crc32cx", "x", crc, word);
    }
    for (; length; data++, length--)
        TIDELOG_ARM_STEP("crc32cb", "w", crc, (uint32_t)*data);
    return ~crc;
}

static uint32_t tidelog_crc32_by_armv8(uint32_t crc, const uint8_t *data, size_t length)
{
    crc = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        TIDELOG_ARM_STEP("crc32x", "x", crc, word);
    }
    for (; length; data++, length--)
        TIDELOG_ARM_STEP("crc32b", "w", crc, (uint32_t)*data);
    return ~crc;
}

#endif

/* --- what crc.pxd calls ---------------------------------------------------------------------------------------------- */

/* Fill the tables, look at the processor; return what will be used. The caller holds the interpreter's lock. */
static int tidelog_checksums_init(void)
{
    tidelog_fill_table(tidelog_crc32c_table, TIDELOG_CRC32C_POLYNOMIAL);
    tidelog_fill_table(tidelog_crc32_table, TIDELOG_CRC32_POLYNOMIAL);
    memset(tidelog_short_zeros, 0, sizeof tidelog_short_zeros);
    memset(tidelog_long_zeros, 0, sizeof tidelog_long_zeros);
    tidelog_fill_zeros(tidelog_short_zeros, TIDELOG_SHORT_PIECE);
    tidelog_fill_zeros(tidelog_long_zeros, TIDELOG_LONG_PIECE);
#if defined(TIDELOG_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2"))
        tidelog_implementation = TIDELOG_BY_SSE42;
#elif defined(TIDELOG_ARM) && defined(__ARM_FEATURE_CRC32)
    tidelog_implementation = TIDELOG_BY_ARMV8;
#elif defined(TIDELOG_ARM)
    if (getauxval(AT_HWCAP) & HWCAP_CRC32)
        tidelog_implementation = TIDELOG_BY_ARMV8;
#endif
    return tidelog_implementation;
}

static uint32_t tidelog_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t length)
{
    return tidelog_crc_by_table(tidelog_crc32c_table, crc, data, length);
}

/* `crc` is the sum of what came before, 0 at the beginning; as in zlib. */
static uint32_t tidelog_crc32c(uint32_t crc, const uint8_t *data, size_t length)
{
#ifdef TIDELOG_X86
    if (tidelog_implementation == TIDELOG_BY_SSE42)
        return tidelog_crc32c_by_sse42(crc, data, length);
#endif
#ifdef TIDELOG_ARM
    if (tidelog_implementation == TIDELOG_BY_ARMV8)
        return tidelog_crc32c_by_armv8(crc, data, length);
#endif
    return tidelog_crc32c_by_table(crc, data, length);
}

static uint32_t tidelog_crc32(uint32_t crc, const uint8_t *data, size_t length)
{
#ifdef TIDELOG_ARM
    if (tidelog_implementation == TIDELOG_BY_ARMV8)
        return tidelog_crc32_by_armv8(crc, data, length);
#endif
    return tidelog_crc_by_table(tidelog_crc32_table, crc, data, length);
}

#endif
