// SPDX-License-Identifier: Apache-2.0
#include "fastq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "lists.h"

const char *const parsing_names[PARSINGS] = {"original", "deferred", "batched", "blocked"};

enum { BASES_PER_WORD = 32, LOWEST_QUALITY = '!', QUALITIES = '~' - '!' + 1, NOT_A_BASE = 4 };

static const char letters[] = "ACGT";
static const unsigned char codes[256] = {['A'] = 4, ['C'] = 5, ['G'] = 6, ['T'] = 7};

static uint64_t name_checksum(uint64_t sum, char letter)
{
    return (sum << 5 | sum >> 59) ^ (unsigned char)letter;
}

static uint64_t checksum(uint64_t name, const uint64_t *bases, uint64_t count, uint64_t qualities)
{
    uint64_t sum = name + (qualities << 32) + count;
    for (uint64_t i = 0; i < (count + BASES_PER_WORD - 1) / BASES_PER_WORD; i++) {
        sum = (sum ^ bases[i]) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 29;
    }
    return sum;
}

// Writes a record of exactly `bytes` bytes and returns its checksum, which is computed from what is written and
// not from the text.
static uint64_t write_record(char *to, uint64_t bytes, uint64_t number, uint64_t *random, uint64_t *bases)
{
    char name[32];
    uint64_t name_bytes = (uint64_t)snprintf(name, sizeof name, "read.%llu", (unsigned long long)number);
    const uint64_t rest = bytes - name_bytes - strlen("@\n\n+\n\n"), count = rest / 2;
    if (rest % 2)
        name[name_bytes++] = '/';
    uint64_t name_sum = 0, qualities = 0;
    *to++ = '@';
    for (uint64_t i = 0; i < name_bytes; i++) {
        *to++ = name[i];
        name_sum = name_checksum(name_sum, name[i]);
    }
    *to++ = '\n';
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *word = &bases[i / BASES_PER_WORD];
        const uint64_t in_word = i % BASES_PER_WORD;
        if (!in_word)
            *word = random_next(random) >> (count - i < BASES_PER_WORD ? 2 * (BASES_PER_WORD - (count - i)) : 0);
        *to++ = letters[*word >> 2 * in_word & 3];
    }
    *to++ = '\n';
    *to++ = '+';
    *to++ = '\n';
    for (uint64_t i = 0, bits = 0; i < count; i++, bits >>= 4) {
        bits = i % 16 ? bits : random_next(random);
        const uint64_t quality = 24 + (bits & 15);
        qualities += quality;
        *to++ = (char)(LOWEST_QUALITY + quality);
    }
    *to = '\n';
    return checksum(name_sum, bases, count, qualities);
}

Text text_write(char *base, uint64_t bytes, uint64_t record_bytes, uint64_t block_bytes)
{
    Text text = {.base = base, .record_bytes = record_bytes, .block_bytes = block_bytes};
    const uint64_t spread = record_bytes / 8, most = bytes / (record_bytes - spread);
    uint64_t random = record_bytes, *bases = must_allocate(record_bytes / BASES_PER_WORD, sizeof *bases);
    text.sums = must_allocate(most + 1, sizeof *text.sums);
    text.block_holds = block_bytes / record_bytes;
    for (uint64_t at = 0; bytes - at >= (block_bytes ? block_bytes : record_bytes);) {
        const uint64_t block = at;
        for (uint64_t i = 0; i < (block_bytes ? text.block_holds : 1); i++) {
            const uint64_t length = record_bytes - random_below(&random, spread + 1);
            text.sums[text.records + 1] =
                text.sums[text.records] + write_record(base + at, length, text.records, &random, bases);
            text.records++;
            at += length;
        }
        if (block_bytes) {
            memset(base + at - 1, ' ', block + block_bytes - at);
            at = block + block_bytes;
            base[at - 1] = '\n';
        }
        text.bytes = at;
    }
    free(bases);
    return text;
}

void text_free(Text *text)
{
    free(text->sums);
    *text = (Text){0};
}

uint64_t text_sum(const Text *text, uint64_t records)
{
    return records / text->records * text->sums[text->records] + text->sums[records % text->records];
}

Record record_make(uint64_t record_bytes)
{
    return (Record){.name = must_allocate(record_bytes, 1),
                    .bases = must_allocate(record_bytes / BASES_PER_WORD + 1, sizeof(uint64_t)),
                    .qualities = must_allocate(record_bytes, 1)};
}

void record_free(Record *record)
{
    free(record->name);
    free(record->bases);
    free(record->qualities);
}

// True and past the letter if it is the next one.
static bool expect(const char **at, const char *end, char letter)
{
    return *at < end && *(*at)++ == letter;
}

const char *record_parse(Record *record, const char *at, const char *end)
{
    uint64_t name = 0, names = 0, word = 0, bases = 0, qualities = 0, sum = 0;
    record->checksum = 0;
    if (!expect(&at, end, '@'))
        return end;
    for (; at < end && *at != '\n'; at++) {
        record->name[names++] = *at;
        name = name_checksum(name, *at);
    }
    if (!expect(&at, end, '\n'))
        return end;
    for (; at < end && *at != '\n'; at++) {
        const uint64_t code = codes[(unsigned char)*at];
        if (code < NOT_A_BASE)
            return end;
        word |= (code & 3) << 2 * (bases % BASES_PER_WORD);
        record->bases[bases / BASES_PER_WORD] = word;
        if (++bases % BASES_PER_WORD == 0)
            word = 0;
    }
    if (!expect(&at, end, '\n') || !expect(&at, end, '+') || !expect(&at, end, '\n'))
        return end;
    for (; at < end && *at != '\n' && *at != ' '; at++) {
        const unsigned quality = (unsigned)(unsigned char)*at - LOWEST_QUALITY;
        if (quality >= QUALITIES || qualities == bases)
            return end;
        record->qualities[qualities++] = (unsigned char)quality;
        sum += quality;
    }
    while (at < end && *at == ' ')
        at++;
    if (qualities != bases || !expect(&at, end, '\n'))
        return end;
    record->checksum = checksum(name, record->bases, bases, sum);
    return at;
}

// The next record, and the end of the text that it may take up.
static const char *next(const Reader *reader, const Text *text, uint64_t most, const char **end)
{
    const uint64_t position = reader->position, at = position < text->bytes ? position : 0,
                   rest = text->bytes - at;
    *end = text->base + at + (most < rest ? most : rest);
    return text->base + at;
}

void reader_parse(Reader *reader, const Text *text, Record *record)
{
    const char *end, *at = next(reader, text, text->record_bytes, &end);
    reader->position = (uint64_t)(record_parse(record, at, end) - text->base);
    reader->records++;
}

char *reader_copy(Reader *reader, const Text *text, char *to)
{
    const char *end, *at = next(reader, text, text->record_bytes, &end);
    for (int newlines = 0; newlines < 4 && at < end;) {
        newlines += *at == '\n';
        *to++ = *at++;
    }
    reader->position = (uint64_t)(at - text->base);
    reader->records++;
    return to;
}

void reader_copy_block(Reader *reader, const Text *text, char *to)
{
    const char *end, *at = next(reader, text, text->block_bytes, &end);
    memcpy(to, at, (size_t)(end - at));
    reader->position = (uint64_t)(end - text->base);
    reader->records += text->block_holds;
}
