/* added: finds added tokens in a text. The texts are sorted, so the longest match is found by narrowing a
 * range of them byte by byte. */
#include "corpus/tokenizer/added.h"

#include "corpus/tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *x, const void *y)
{
    const AddedText *a = x, *b = y;
    int order = memcmp(a->text, b->text, (size_t)(a->n < b->n ? a->n : b->n));
    return order != 0 ? order : a->n - b->n;
}

/* first[b] is found for all 256 bytes in one pass over the sorted texts. A byte with no text has an
 * empty range. */
int32_t added_sort(AddedSet *s)
{
    if (s->n > 0) qsort(s->at, (size_t)s->n, sizeof *s->at, by_bytes);
    int32_t twice = -1;
    for (int32_t i = 0, byte = 0; byte <= 256; byte++) {
        while (i < s->n && (uint8_t)s->at[i].text[0] < byte) i++;
        s->first[byte] = i;
    }
    for (int32_t i = 1; i < s->n; i++) {
        if (by_bytes(&s->at[i - 1], &s->at[i]) == 0) twice = i;
    }
    return twice;
}

/* Texts [low, high) have equal bytes before `at`. Returns the first of them whose byte at `at` is at
 * least `byte`. */
static int32_t lower_bound(const AddedSet *s, int32_t low, int32_t high, size_t at, int byte)
{
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if ((uint8_t)s->at[middle].text[at] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const AddedText *added_longest(const AddedSet *s, const char *text, size_t n)
{
    const AddedText *best = NULL;
    if (n == 0) return NULL;
    int32_t low = s->first[(uint8_t)text[0]], high = s->first[(uint8_t)text[0] + 1];
    for (size_t at = 1; low < high; at++) { /* [low, high) begin with the text's first `at` bytes */
        if ((size_t)s->at[low].n == at) best = &s->at[low++];
        if (at == n) break;
        low = lower_bound(s, low, high, at, (uint8_t)text[at]);
        high = lower_bound(s, low, high, at, (uint8_t)text[at] + 1);
    }
    return best;
}

/* Length in bytes of the white-space character (Unicode's White_Space) that the text begins with; 0:
 * it begins with another character. */
static size_t space_at(const char *text, size_t n)
{
    static const char *const spaces[] = {
        "\xC2\x85", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
        "\u2004",   "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200A",
        "\u2028",   "\u2029", "\u202F", "\u205F", "\u3000",
    };
    if (n > 0 && (text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r'))) return 1;
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        size_t bytes = strlen(spaces[i]);
        if (n >= bytes && memcmp(text, spaces[i], bytes) == 0) return bytes;
    }
    return 0;
}

/* Where the run of white space that ends at `end` begins, but not before `done`. */
static size_t spaces_before(const char *text, size_t done, size_t end)
{
    for (size_t bytes = 1; bytes <= 3 && bytes <= end - done;) {
        bool found = space_at(text + end - bytes, bytes) == bytes;
        end -= found ? bytes : 0;
        bytes = found ? 1 : bytes + 1;
    }
    return end;
}

/* Most bytes of a text begin no added token. The table of first bytes rejects them with one comparison. A
 * match that is dropped is not searched for shorter ones. */
bool added_find(const AddedSet *s, const char *text, size_t n, size_t from, size_t done,
                AddedMatch *out)
{
    const AddedText *found = NULL;
    for (; s->n > 0 && from < n; from += found == NULL ? 1 : (size_t)found->n) {
        uint8_t byte = (uint8_t)text[from];
        found = NULL;
        if (s->first[byte] == s->first[byte + 1]) continue;
        found = added_longest(s, text + from, n - from);
        if (found == NULL) continue;
        if (!found->single_word || (!normalize_word_before(text, from) &&
                                    !normalize_word_at(text, n, from + (size_t)found->n)))
            break;
    }
    if (from >= n || found == NULL) return false;
    size_t end = from + (size_t)found->n;
    *out = (AddedMatch){ .start = from, .end = end, .next = end, .id = found->id };
    if (found->lstrip && done < from) out->start = spaces_before(text, done, from);
    for (size_t bytes = 1; found->rstrip && bytes > 0; out->end += bytes)
        bytes = space_at(text + out->end, n - out->end);
    return true;
}
