/*
 * xml_check: is a text well-formed? Tags nest, attributes are quoted and stand once, & begins an
 * entity that XML knows, < stands for tags only. What <style> and <script> hold is passed over up
 * to their closing tag; one <!DOCTYPE> may come first.
 */
#ifndef PAGES_UNIT_XML_CHECK_H
#define PAGES_UNIT_XML_CHECK_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { XML_DEPTH = 32, XML_NAME = 32, XML_ATTRIBUTES = 16 };

typedef struct Xml {
    const char *at;
    char open[XML_DEPTH][XML_NAME];
    int depth, roots;
    const char *error; /* NULL so far */
} Xml;

static bool xml_bad(Xml *x, const char *why)
{
    if (x->error == NULL) x->error = why;
    return false;
}

static size_t xml_name(Xml *x, char out[XML_NAME])
{
    size_t n = strspn(x->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:_");
    if (n == 0 || n >= XML_NAME) return (size_t)xml_bad(x, "a name is missing or too long");
    memcpy(out, x->at, n);
    out[n] = '\0';
    x->at += n;
    return n;
}

static bool xml_entity(Xml *x)
{
    static const char *const KNOWN[] = { "&amp;", "&lt;", "&gt;", "&quot;" };
    for (int i = 0; i < 4; i++) {
        size_t n = strlen(KNOWN[i]);
        if (strncmp(x->at, KNOWN[i], n) == 0) {
            x->at += n;
            return true;
        }
    }
    return xml_bad(x, "& begins no entity");
}

/* Text up to `stop`. */
static bool xml_text(Xml *x, char stop)
{
    while (*x->at != stop && *x->at != '\0' && x->error == NULL) {
        unsigned char c = (unsigned char)*x->at;
        if (c == '&') {
            xml_entity(x);
            continue;
        }
        if (c == '<') return xml_bad(x, "< inside of text");
        if (c < 0x20 && c != '\n' && c != '\t') return xml_bad(x, "a control character");
        x->at++;
    }
    return x->error == NULL;
}

static bool xml_attribute(Xml *x, char seen[XML_ATTRIBUTES][XML_NAME], int n)
{
    if (n == XML_ATTRIBUTES || xml_name(x, seen[n]) == 0) return xml_bad(x, "attribute");
    for (int i = 0; i < n; i++) {
        if (strcmp(seen[i], seen[n]) == 0) return xml_bad(x, "an attribute stands twice");
    }
    if (strncmp(x->at, "=\"", 2) != 0) return xml_bad(x, "an attribute without quotes");
    x->at += 2;
    if (!xml_text(x, '"')) return false;
    if (*x->at != '"') return xml_bad(x, "an attribute without end");
    x->at++;
    return true;
}

static bool xml_close(Xml *x)
{
    char name[XML_NAME] = "";
    if (xml_name(x, name) == 0) return false;
    if (x->depth == 0 || strcmp(x->open[x->depth - 1], name) != 0) {
        return xml_bad(x, "a closing tag that closes nothing");
    }
    x->depth--;
    if (*x->at != '>') return xml_bad(x, "a closing tag without end");
    x->at++;
    return true;
}

static bool xml_raw(Xml *x, const char *name)
{
    char closing[XML_NAME + 3];
    if (strcmp(name, "style") != 0 && strcmp(name, "script") != 0) return true;
    (void)snprintf(closing, sizeof closing, "</%s", name);
    const char *end = strstr(x->at, closing);
    if (end == NULL) return xml_bad(x, "style or script without end");
    x->at = end;
    return true;
}

static bool xml_tag(Xml *x)
{
    char name[XML_NAME] = "", seen[XML_ATTRIBUTES][XML_NAME];
    x->at++;
    if (*x->at == '/') {
        x->at++;
        return xml_close(x);
    }
    if (xml_name(x, name) == 0) return false;
    for (int n = 0; isspace((unsigned char)*x->at); n++) {
        while (isspace((unsigned char)*x->at)) x->at++;
        if (*x->at == '>' || *x->at == '/') break;
        if (!xml_attribute(x, seen, n)) return false;
    }
    x->roots += x->depth == 0;
    if (strncmp(x->at, "/>", 2) == 0) {
        x->at += 2;
        return true;
    }
    if (*x->at != '>') return xml_bad(x, "a tag without end");
    x->at++;
    if (x->depth == XML_DEPTH) return xml_bad(x, "too deep");
    memcpy(x->open[x->depth++], name, XML_NAME);
    return xml_raw(x, name);
}

/* NULL if the text is one well-formed element, else what is wrong; *place is then near it. */
static inline const char *xml_error(const char *text, const char **place)
{
    Xml x = { .at = text };
    static const char DOCTYPE[] = "<!DOCTYPE html>";
    if (strncmp(text, DOCTYPE, sizeof DOCTYPE - 1) == 0) x.at += sizeof DOCTYPE - 1;
    while (*x.at != '\0' && x.error == NULL) {
        if (*x.at == '<') {
            xml_tag(&x);
        } else if (x.depth == 0 && !isspace((unsigned char)*x.at)) {
            xml_bad(&x, "text outside of the element");
        } else {
            xml_text(&x, '<');
        }
    }
    if (x.depth > 0) xml_bad(&x, "an element without end");
    if (x.roots != 1) xml_bad(&x, "not one element");
    *place = x.at;
    return x.error;
}

#endif
