// SPDX-License-Identifier: Apache-2.0
// A text of FASTQ records in memory, and a reader that threads share, which hands out each record once.
#ifndef FASTQ_H
#define FASTQ_H

#include <stdbool.h>
#include <stdint.h>

// What a thread does with the next record while it has the reader for itself (Langmead and others, Bioinformatics
// 2019, table 1). original: it parses the record. deferred: it copies it, counting four newlines, and parses it
// afterwards. batched: it copies several. blocked: it copies a block of fixed size, of which all records are
// whole.
typedef enum { ORIGINAL, DEFERRED, BATCHED, BLOCKED, PARSINGS } Parsing;

extern const char *const parsing_names[PARSINGS];

typedef struct {
    const char *base;
    uint64_t bytes, records;
    uint64_t record_bytes;             // of the longest record
    uint64_t block_bytes, block_holds; // with the records of a block; 0 without blocks
    uint64_t *sums;                    // the checksums of the first 0, 1, ... all records, added up
} Text;

// Writes records of up to record_bytes, the shortest an eighth shorter, in at most `bytes` bytes. In blocks,
// spaces after the last quality fill each block. The text is always the same.
Text text_write(char *base, uint64_t bytes, uint64_t record_bytes, uint64_t block_bytes);
void text_free(Text *text);

// The checksums of the first `records` records added up; after the last record the first one follows.
uint64_t text_sum(const Text *text, uint64_t records);

// The place of the next record, and how many were handed out.
typedef struct {
    uint64_t position, records;
} Reader;

// A parsed record: the bases in 2 bits each.
typedef struct {
    char *name;
    uint64_t *bases;
    unsigned char *qualities;
    uint64_t checksum; // 0 if the text is not a record
} Record;

Record record_make(uint64_t record_bytes);
void record_free(Record *record);

// Parses the record at a place of a text; returns the end of the record.
const char *record_parse(Record *record, const char *at, const char *end);

// Takes the reader's next record. The caller must have the reader for itself.
void reader_parse(Reader *reader, const Text *text, Record *record);
char *reader_copy(Reader *reader, const Text *text, char *to); // returns the end of the copy

// Takes the reader's next block.
void reader_copy_block(Reader *reader, const Text *text, char *to);

#endif
