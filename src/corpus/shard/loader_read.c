/* loader_read: fills one batch: chooses the next sequences, reads their tokens, and notes where their
 * documents begin. */
#include "corpus/shard/loader_private.h"

#include "engine/base/rng.h"

#include <stdio.h>
#include <string.h>

enum { ORDER_TEXT_BYTES = 64 };

/* A page fault maps 64 KiB around the address; where the cache has large folios, it maps more (measured on
 * Linux 6.18). So a run of tokens counts as 128 KiB more at either end. */
static const int64_t WINDOW_BYTES = 128 << 10;
static const int64_t PIECE_TOKENS = 256 << 10; /* read between two looks at the limit */
static const size_t RESIDENT_BYTES = (size_t)32 << 20;

size_t loader_resident_bytes(const Loader *l)
{
    return l->mapped_bytes < RESIDENT_BYTES ? l->mapped_bytes : RESIDENT_BYTES;
}

/* Counts the bytes that a reader is about to touch, and releases pages in time: both readers together may
 * keep RESIDENT_BYTES. */
static void count_touched(const Loader *l, Reader *r, int64_t bytes)
{
    int64_t more = (bytes / WINDOW_BYTES + 2) * WINDOW_BYTES;
    if (l->mapped_bytes <= RESIDENT_BYTES) return;
    if (r->touched_bytes + more > (int64_t)RESIDENT_BYTES / 2) {
        for (int i = 0; i < l->n; i++) shard_forget(&l->source[i].shard);
        r->touched_bytes = 0;
    }
    r->touched_bytes += more;
}

/* ---- streams: documents end to end ---- */

/* Document number k of the epoch's order. rng_permute computes it without a table of the order. */
static int64_t epoch_document(const Loader *l, const Source *s, int64_t k)
{
    if (!l->config.shuffle) return k;
    return (int64_t)rng_permute(l->config.seed, s->order, (uint64_t)k,
                                (uint64_t)s->shard.documents);
}

/* Begins an epoch. Where its documents start is computed as they are read: a table of all of them would
 * take seconds for some ten million documents, before the first batch. */
static void begin_epoch(Source *s, int64_t epoch)
{
    char text[ORDER_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "documents of %016llx, epoch %lld",
                   (unsigned long long)rng_stream(s->name), (long long)epoch);
    s->order = rng_stream(text);
    s->epoch = epoch;
    s->stream.start[0] = 0;
    s->stream.known = 1;
    s->stream.last = (Spot){ .start = INT64_MAX };
}

/* Sets what follows from k and start. */
static void fill_spot(const Loader *l, const Source *s, Spot *at)
{
    at->document = at->held ? s->held.document[at->k] : epoch_document(l, s, at->k);
    at->end = at->held ? s->held.start[at->k + 1] : at->start + s->length[at->document];
}

static void next_spot(const Loader *l, const Source *s, Spot *at)
{
    at->k++;
    at->start = at->end;
    fill_spot(l, s, at);
}

/* The last i with start[i] <= token, of n. */
static int64_t last_start(const int64_t *start, int64_t n, int64_t token)
{
    int64_t low = 0, high = n;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (start[middle] <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Computes the starts of groups until the token is before the last known one, or there are no more. */
static void know_until(const Loader *l, Source *s, int64_t token)
{
    EpochStream *e = &s->stream;
    int64_t groups = s->shard.documents / STREAM_GROUP + 1;
    while (e->known < groups && e->start[e->known - 1] <= token) {
        Spot at = { .k = (e->known - 1) * STREAM_GROUP, .start = e->start[e->known - 1] };
        fill_spot(l, s, &at);
        while (at.k % STREAM_GROUP < STREAM_GROUP - 1) next_spot(l, s, &at);
        e->start[e->known++] = at.end;
    }
}

/* The document that holds a token: the last one that starts there or before, because empty documents
 * before it have the same start. In an epoch the search begins where the one before ended, or at a later
 * group. */
static Spot find_spot(const Loader *l, Source *s, bool held, int64_t token)
{
    EpochStream *e = &s->stream;
    Spot at = { .held = held };
    if (held) {
        at.k = last_start(s->held.start, s->held.n, token);
        at.start = s->held.start[at.k];
    } else {
        know_until(l, s, token);
        int64_t group = last_start(e->start, e->known, token);
        at.k = group * STREAM_GROUP;
        at.start = e->start[group];
        if (e->last.start <= token && e->last.k > at.k) at = e->last;
    }
    fill_spot(l, s, &at);
    while (at.end <= token) next_spot(l, s, &at);
    if (!held) e->last = at;
    return at;
}

static int64_t stream_tokens(const Source *s, bool held)
{
    return held ? s->held.start[s->held.n] : s->tokens;
}

/* ---- rows ---- */

/* One unsigned maximum over the piece finds negative and too large ids without a branch per id. The
 * slow search for the position runs only after an error. */
static Status check_ids(const Loader *l, const Source *s, const int32_t *ids, int64_t n,
                        int64_t token, int64_t document)
{
    uint32_t largest = 0; /* negative ids are huge here */
    for (int64_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)ids[i];
        largest = id > largest ? id : largest;
    }
    if ((int64_t)largest < l->config.vocab) return OK;
    int64_t i = 0;
    while ((uint32_t)ids[i] < l->config.vocab) i++;
    return FAIL(ERR_FORMAT,
                "source %s: token %lld of document %lld in %s.bin is id %d, the vocabulary has "
                "%lld: was it prepared with another tokenizer?",
                s->name, (long long)(token + i - shard_start(&s->shard, document)),
                (long long)document, s->shard.prefix, ids[i], (long long)l->config.vocab);
}

/* Ids [first, first + n) of the source's .bin, all of one document. Pieces bound how many pages can
 * be touched between two calls of count_touched. */
static Status read_ids(const Loader *l, Reader *r, const Source *s, int64_t document, int64_t first,
                       int64_t n, int32_t *out)
{
    for (int64_t i = 0; i < n; i += PIECE_TOKENS) {
        int64_t piece = n - i < PIECE_TOKENS ? n - i : PIECE_TOKENS;
        count_touched(l, r, piece * s->shard.id_bytes);
        shard_read(&s->shard, first + i, piece, out + i);
        TRY(check_ids(l, s, out + i, piece, first + i, document));
    }
    return OK;
}

/* For n tokens of a document from `first` on, which are at position t of a row: sets which are learned,
 * and where their chats start. */
static void read_mask(const Shard *s, Reader *r, int64_t first, int64_t t, int64_t n)
{
    int64_t end = first;
    int32_t start = 0;
    for (int64_t i = 0; i < n; i++) {
        r->learned[t + i] = shard_learns(s, first + i);
        if (first + i == end || i == 0) {
            int64_t chat = shard_chat(s, first + i, &end);
            start = (int32_t)(chat > first ? t + chat - first : t);
        }
        r->doc[t + i] = start;
    }
}

/* Reads T + 1 tokens of the stream from `token` on into r->row, whether each is learned, and where in
 * the row its document starts. *have: how many were read; fewer than T + 1 only at the end of the
 * stream. */
static Status read_row(const Loader *l, Reader *r, Source *s, bool held, int64_t token,
                       int64_t *have)
{
    int64_t T = l->config.sequence, end = stream_tokens(s, held);
    int64_t wanted = end - token < T + 1 ? end - token : T + 1;
    Spot at = { 0 };
    if (wanted > 0) at = find_spot(l, s, held, token);
    for (int64_t t = 0; t < wanted;) {
        while (at.end <= token + t) next_spot(l, s, &at);
        int64_t left = at.end - (token + t);
        int64_t n = left < wanted - t ? left : wanted - t;
        int64_t first = 0;
        count_touched(l, r, 0); /* the index */
        (void)holdout_part(&s->out, &s->shard, at.document, held, &first);
        first += token + t - at.start;
        TRY(read_ids(l, r, s, at.document, first, n, r->row + t));
        for (int64_t i = t; i < t + n; i++) r->doc[i] = (int32_t)t;
        memset(r->learned + t, true, (size_t)n * sizeof *r->learned);
        if (s->shard.learned != NULL) read_mask(&s->shard, r, first, t, n);
        t += n;
    }
    *have = wanted > 0 ? wanted : 0;
    return OK;
}

static int32_t *row_of(const Tensor *t, int64_t row, int64_t T)
{
    return (int32_t *)t->data + row * T;
}

/* Bytes are counted for the rows of this rank only, unlike targets. */
static void count_targets(const Loader *l, Batch *b, const int32_t *target, int64_t n)
{
    for (int64_t t = 0; t < n; t++) {
        b->targets += target[t] >= 0;
        if (l->config.token_bytes != NULL && target[t] >= 0)
            b->bytes += l->config.token_bytes[target[t]];
    }
}

/* Does token t of a row of `have` have a target at this depth? It is learned, and of the same document. */
static bool predicts(const Reader *r, int depth, int64_t t, int64_t have)
{
    int64_t at = t + 1 + depth;
    return at < have && r->doc[at] <= t && r->learned[at];
}

/* Depth d reads the token d positions further on and predicts the one after it: DeepSeek-V3's
 * multi-token prediction (arXiv:2412.19437, section 2.2). */
static void fill_depth(const Reader *r, int depth, int64_t have, int64_t T, Batch *b, int64_t row)
{
    int32_t *id = row_of(&b->next[depth - 1].id, row, T);
    int32_t *target = row_of(&b->next[depth - 1].target, row, T);
    for (int64_t t = 0; t < T; t++) {
        bool has = predicts(r, depth, t, have);
        id[t] = t + depth < have ? r->row[t + depth] : 0;
        target[t] = has ? r->row[t + 1 + depth] : -1;
        b->next[depth - 1].targets += has;
    }
}

/* Row `row` of the batch: the sequence that starts at `token` of the stream. */
static Status fill_row(const Loader *l, Reader *r, Source *s, bool held, int64_t token, Batch *b,
                       int64_t row)
{
    int64_t T = l->config.sequence, have = 0;
    int32_t *id = row_of(&b->id, row, T), *target = row_of(&b->target, row, T);
    int32_t *pos = row_of(&b->pos, row, T), *doc = row_of(&b->doc, row, T);
    TRY(read_row(l, r, s, held, token, &have));
    int64_t ids = have < T ? have : T, targets = have > 0 ? have - 1 : 0;
    memcpy(id, r->row, (size_t)ids * sizeof *id);
    memcpy(doc, r->doc, (size_t)ids * sizeof *doc);
    memcpy(target, r->row + 1, (size_t)targets * sizeof *target);
    for (int64_t t = ids; t < T; t++) {
        id[t] = 0;
        doc[t] = (int32_t)ids;
    }
    for (int64_t t = 0; t < T; t++) {
        if (t >= targets || !r->learned[t + 1]) target[t] = -1;
    }
    for (int64_t t = 0; t < T; t++) pos[t] = (int32_t)t;
    ((int32_t *)b->domain.data)[row] = (int32_t)(s - l->source);
    count_targets(l, b, target, targets);
    for (int i = 0; i < b->depths; i++) fill_depth(r, i + 1, have, T, b, row);
    return OK;
}

/* Counts the targets of a sequence that another rank reads, in a source with a mask. The batch's totals
 * are over all ranks, so that each rank knows them without communication. */
static Status count_others(const Loader *l, Reader *r, Source *s, int64_t token, Batch *b)
{
    int64_t have = 0;
    TRY(read_row(l, r, s, false, token, &have));
    for (int64_t t = 1; t < have; t++) b->targets += r->learned[t];
    for (int i = 0; i < b->depths; i++) {
        for (int64_t t = 0; t < have; t++) b->next[i].targets += predicts(r, i + 1, t, have);
    }
    return OK;
}

/* Targets of the sequence that starts at a token, without a mask. */
static int64_t targets_of(const Loader *l, const Source *s, int64_t token)
{
    int64_t left = s->tokens - 1 - token;
    return left < l->config.sequence ? left : l->config.sequence;
}

/* The same for a source with depths but without a mask: no tokens need be read. Of n tokens of a document, all but the
 * last 1 + k have a target at depth k. */
static void count_documents(const Loader *l, Source *s, int64_t token, Batch *b)
{
    int64_t end = token + 1 + targets_of(l, s, token);
    Spot at = find_spot(l, s, false, token);
    b->targets += end - token - 1;
    for (;; next_spot(l, s, &at)) {
        int64_t n = (at.end < end ? at.end : end) - (at.start > token ? at.start : token);
        for (int i = 0; i < b->depths; i++) b->next[i].targets += n > 2 + i ? n - 2 - i : 0;
        if (at.end >= end) return;
    }
}

/* ---- batches ---- */

Status batch_new(Arena *a, int64_t b, int64_t t, Batch *out)
{
    return batch_new_deep(a, b, t, 0, out);
}

Status batch_new_deep(Arena *a, int64_t b, int64_t t, int depths, Batch *out)
{
    Batch new = { .depths = depths };
    TRY(tensor_new1(a, DTYPE_I32, b * t, &new.id));
    TRY(tensor_new1(a, DTYPE_I32, b * t, &new.target));
    TRY(tensor_new1(a, DTYPE_I32, b * t, &new.pos));
    TRY(tensor_new2(a, DTYPE_I32, b, t, &new.doc));
    TRY(tensor_new1(a, DTYPE_I32, b, &new.domain));
    for (int i = 0; i < depths; i++) {
        TRY(tensor_new1(a, DTYPE_I32, b * t, &new.next[i].id));
        TRY(tensor_new1(a, DTYPE_I32, b * t, &new.next[i].target));
    }
    *out = new;
    return OK;
}

static void clear_counts(Batch *b)
{
    b->targets = b->bytes = 0;
    for (int i = 0; i < b->depths; i++) b->next[i].targets = 0;
}

/* Sequence number `sequence` of the source: mine, or counted for the batch's totals. */
static Status take_sequence(Loader *l, Source *s, int64_t sequence, int64_t row, Batch *out)
{
    int64_t own = out->domain.dim[0], epoch = sequence / s->sequences;
    bool mine = row >= 0 && row < own, counted = s->shard.learned != NULL || out->depths > 0;
    int64_t token = sequence % s->sequences * l->config.sequence;
    if (!mine && !counted) {
        out->targets += targets_of(l, s, token);
        return OK;
    }
    /* Sequences of a source come in rising order, so an epoch begins once. After a seek it may be
     * another epoch. */
    if (s->epoch != epoch) begin_epoch(s, epoch);
    if (mine) return fill_row(l, &l->reader, s, false, token, out, row);
    if (s->shard.learned != NULL) return count_others(l, &l->reader, s, token, out);
    count_documents(l, s, token, out);
    return OK;
}

/* Gives the tensors of a slot, which have room for the largest step, the shapes of n sequences. */
static void resize_batch(Batch *b, int64_t n, int64_t sequence)
{
    Tensor *const rows[] = { &b->id, &b->target, &b->pos };
    for (int i = 0; i < 3; i++) rows[i]->dim[0] = n * sequence;
    for (int i = 0; i < b->depths; i++)
        b->next[i].id.dim[0] = b->next[i].target.dim[0] = n * sequence;
    b->doc.dim[0] = b->domain.dim[0] = n;
}

static Status next_phase(Loader *l)
{
    for (int i = 0; i < l->n; i++) l->base[i] += mix_taken(&l->mix, i);
    return loader_begin_phase(l, l->phase + 1, 0);
}

/* Every rank walks all sequences of the step, so that the mix advances equally everywhere. It
 * reads only its own rows, and those of others only where their targets must be counted. */
Status loader_fill(Loader *l, Batch *out)
{
    const LoaderConfig *c = &l->config;
    int64_t n = c->ramp != NULL ? ramp_batch(c->ramp, l->step + 1) : c->batch;
    int64_t own = c->own > 0 ? c->own : c->batch;
    clear_counts(out);
    resize_batch(out, own * n / c->batch, c->sequence);
    while (l->phase < l->config.n_phases && loader_phase_step(l, l->phase + 1) <= l->step)
        TRY(next_phase(l));
    for (int64_t at = 0; at < n; at++) {
        int i = mix_next(&l->mix);
        /* mix_next has counted this sequence already, so its number within the source is one
         * less. */
        int64_t sequence = l->base[i] + mix_taken(&l->mix, i) - 1;
        TRY(take_sequence(l, &l->source[i], sequence, at - c->first * n / c->batch, out));
    }
    l->step++;
    for (int i = 0; i < l->n; i++) out->taken[i] = l->base[i] + mix_taken(&l->mix, i);
    return OK;
}

Status loader_check_files(const Loader *l)
{
    for (int i = 0; i < l->n; i++) TRY(shard_check_same(&l->source[i].shard));
    return OK;
}

int64_t loader_document(Loader *l, int source, int64_t sequence, int64_t token, int64_t *end)
{
    Source *s = &l->source[source];
    const int64_t epoch = sequence / s->sequences;
    const int64_t first = sequence % s->sequences * l->config.sequence;
    if (s->epoch != epoch) begin_epoch(s, epoch);
    const Spot at = find_spot(l, s, false, first + token);
    *end = at.end - first;
    return at.document;
}

static Status check_source(const Loader *l, int source)
{
    if (source >= 0 && source < l->n) return OK;
    return FAIL(ERR_ARG, "source %d, there are %d", source, l->n);
}

Status loader_held_sequences(const Loader *l, int source, int64_t *out_n)
{
    TRY(check_source(l, source));
    const HeldStream *held = &l->source[source].held;
    int64_t targets = held->start[held->n] - 1;
    *out_n = targets > 0 ? (targets + l->config.sequence - 1) / l->config.sequence : 0;
    return OK;
}

Status loader_held(Loader *l, int source, int64_t first, int64_t n, Batch *out)
{
    TRY(check_source(l, source));
    int64_t T = l->config.sequence, room = out->domain.dim[0];
    if (first < 0 || n < 0 || n > room || first > INT64_MAX / T - n ||
        tensor_elems(&out->id) < n * T) {
        return FAIL(ERR_SHAPE,
                    "held-out sequences %lld to %lld of %lld tokens, the batch has room for %lld "
                    "and %lld tokens",
                    (long long)first, (long long)(first + n), (long long)T, (long long)room,
                    (long long)tensor_elems(&out->id));
    }
    Source *s = &l->source[source];
    clear_counts(out);
    for (int64_t row = 0; row < n; row++)
        TRY(fill_row(l, &l->held_reader, s, true, (first + row) * T, out, row));
    return shard_check_same(&s->shard);
}

int64_t loader_held_tail(const Loader *l, int source) { return l->source[source].out.tail; }

int64_t loader_held_documents(const Loader *l, int source) { return l->source[source].held.n; }

int64_t loader_held_document(const Loader *l, int source, int64_t k, int64_t *end)
{
    const HeldStream *held = &l->source[source].held;
    *end = held->start[k + 1];
    return held->document[k];
}
