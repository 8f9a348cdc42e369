/* See end_order.h. */

#include "rewrite/end_order.h"

#include <stdlib.h>
#include <string.h>

#include "text/bytes.h"

#define MAX_BEGINS ((size_t)1 << 18)

static int put(int64_t **moments, size_t *num, size_t *capacity, int64_t moment)
{
    if (!array_room_for_next((void **)moments, *num, capacity, sizeof **moments)) return 0;
    (*moments)[(*num)++] = moment;
    return 1;
}

/* Forgets the older half of the begins. A span that begins before the latest of them may begin
 * together with one of them. */
static void forget(EndOrder *order)
{
    size_t half = order->num_begins / 2;
    order->forgotten = order->begins[half - 1];
    order->num_begins -= half;
    memmove(order->begins, order->begins + half, order->num_begins * sizeof *order->begins);
}

int end_order_note(EndOrder *order, int64_t begin, int64_t dur, int is_disordered)
{
    int64_t end = begin + dur, before = order->last_begin;
    int is_first = !order->has_begun;
    if (!is_first)
        order->is_broken |= end < order->last_end ||
                            (end == order->last_end && begin > before && dur > 0);
    if (is_first || begin > order->last_begin) order->last_begin = begin;
    order->last_end = end;
    order->has_begun = 1;
    if (order->is_broken) return 1;
    if (!is_disordered) { /* until a span encloses another one, no begin needs to be kept */
        order->forgotten = order->last_begin;
        return is_first || begin != before ||
               put(&order->shared, &order->num_shared, &order->shared_capacity, begin);
    }
    while (order->num_begins > 0 && order->begins[order->num_begins - 1] > begin)
        order->num_begins--;
    if (order->num_begins > 0 ? order->begins[order->num_begins - 1] == begin
                              : begin <= order->forgotten)
        return put(&order->shared, &order->num_shared, &order->shared_capacity, begin);
    if (order->num_begins >= MAX_BEGINS) forget(order);
    return put(&order->begins, &order->num_begins, &order->begins_capacity, begin);
}

static int compare(const void *one, const void *other)
{
    int64_t first = *(const int64_t *)one, second = *(const int64_t *)other;
    return first < second ? -1 : first > second;
}

void end_order_finish(EndOrder *order)
{
    if (order->is_broken) order->num_shared = 0;
    if (order->num_shared > 0)
        qsort(order->shared, order->num_shared, sizeof *order->shared, compare);
    free(order->begins);
    order->begins = NULL;
    order->num_begins = order->begins_capacity = 0;
}

size_t end_order_shared(const EndOrder *order, int64_t begin)
{
    size_t low = 0, high = order->num_shared, num = 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (order->shared[middle] < begin)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + num < order->num_shared && order->shared[low + num] == begin) num++;
    return num;
}

void end_order_free(EndOrder *order)
{
    free(order->begins);
    free(order->shared);
    memset(order, 0, sizeof *order);
}
