/* Blocks of a pulse: sums over the steps that newer ones have replaced. */

#include "pulse/blocks.h"

#include <string.h>

static void add_sum(PulseSum *to, const PulseSum *more, int is_first)
{
    to->sum = is_first ? more->sum : to->sum + more->sum;
    to->squares = is_first ? more->squares : to->squares + more->squares;
    to->least = is_first || more->least < to->least ? more->least : to->least;
    to->most = is_first || more->most > to->most ? more->most : to->most;
}

/* Add a block of later steps. */
static void add_block(PulseBlock *to, const PulseBlock *more)
{
    int is_first = to->count == 0;
    if (is_first) {
        to->step = more->step;
        to->begin = more->begin;
        to->epoch = more->epoch;
        to->known = more->known;
    }
    if (is_first || more->sums[0].most > to->sums[0].most) to->slowest = more->slowest;
    to->known &= more->known;
    to->count += more->count;
    for (unsigned i = 0; i <= PULSE_NUM_PHASES; i++)
        add_sum(&to->sums[i], &more->sums[i], is_first);
}

static PulseSum sum_of(int64_t duration)
{
    return (PulseSum){duration, (double)duration * (double)duration, (float)duration,
                      (float)duration};
}

static PulseBlock block_of(const PulseStep *step)
{
    PulseBlock block = {.step = step->step,
                        .begin = step->begin,
                        .slowest = step->step,
                        .count = 1,
                        .epoch = step->epoch,
                        .known = step->known};
    block.sums[0] = sum_of(step->duration);
    for (unsigned i = 0; i < PULSE_NUM_PHASES; i++) block.sums[1 + i] = sum_of(step->by_phase[i]);
    return block;
}

/* Free half of the coarse blocks: each two become one. */
static void fold_in_pairs(PulseFile *pulse, PulseHeader *header)
{
    for (int64_t i = 0; i < header->num_coarse / 2; i++) {
        PulseBlock pair = pulse->coarse[2 * i];
        add_block(&pair, &pulse->coarse[2 * i + 1]);
        pulse->coarse[i] = pair;
    }
    header->num_coarse /= 2;
    header->steps_per_coarse *= 2;
}

static void fold_fine(PulseFile *pulse, PulseHeader *header, int64_t max_coarse,
                      const PulseBlock *fine)
{
    PulseBlock *coarse = &pulse->coarse[header->num_coarse];
    add_block(coarse, fine);
    if (coarse->count < header->steps_per_coarse) return;
    if (++header->num_coarse == max_coarse) fold_in_pairs(pulse, header);
    memset(&pulse->coarse[header->num_coarse], 0, sizeof *coarse);
}

void fold_step(PulseFile *pulse, PulseHeader *header, int64_t max_coarse, const PulseStep *step)
{
    PulseBlock *fine = &pulse->fine[header->num_fine % PULSE_FINE_PLACES], of_step = block_of(step);
    add_block(fine, &of_step);
    if (fine->count < PULSE_PER_FINE) return;
    if (++header->num_fine - header->first_fine > PULSE_NUM_FINE)
        fold_fine(pulse, header, max_coarse,
                  &pulse->fine[header->first_fine++ % PULSE_FINE_PLACES]);
    memset(&pulse->fine[header->num_fine % PULSE_FINE_PLACES], 0, sizeof *fine);
}
