"""The serving simulator as its definition reads: one iteration at a time, plain lists, nothing computed ahead."""

from math import inf, nan
from types import SimpleNamespace

from icml26.serving import QueueState, Request


def simulate(workload, server, policy, until=inf):
    arrival, prompt, output = workload.arrival.tolist(), workload.prompt.tolist(), workload.output.tolist()
    everyone = range(len(arrival))
    every, aged, refresh = (getattr(policy, name, None) for name in ("rebuild_every", "aged", "refresh"))
    limit = inf if server.kv_tokens is None else server.kv_tokens
    coming, waiting, running = list(everyone), [], []
    entry, now = [nan] * len(arrival), [nan] * len(arrival)  # scores: at the entry, and in force
    generated, preemptions = [0] * len(arrival), [0] * len(arrival)
    admitted, first_token, finish = [nan] * len(arrival), [nan] * len(arrival), [nan] * len(arrival)
    clock, rebuilds, iterations, peak = 0.0, 0, 0, 0

    def tokens(i):
        return prompt[i] + generated[i]

    def score(i, at):
        request = Request(i, arrival[i], prompt[i], generated[i], preemptions[i])
        entry[i] = now[i] = policy.score(request, QueueState(at, len(waiting), len(running), server.batch))

    def enter(i, at):
        waiting.append(i)
        score(i, at)

    def happen(until):
        nonlocal rebuilds
        while True:
            next_arrival = arrival[coming[0]] if coming else inf
            next_rebuild = (rebuilds + 1) * every if every else inf
            if min(next_arrival, next_rebuild) > until:
                return
            if next_arrival <= next_rebuild:
                enter(coming.pop(0), next_arrival)
                continue
            rebuilds += 1
            for i in waiting:
                if refresh:
                    score(i, next_rebuild)
                if aged:
                    now[i] = aged(entry[i], next_rebuild - arrival[i])

    while coming or waiting or running:
        if not waiting and not running:
            if arrival[coming[0]] > until:
                break
            clock = arrival[coming[0]]
            happen(clock)
        short = False
        while sum(map(tokens, running)) > limit:
            i = running.pop()
            preemptions[i] += 1
            enter(i, clock)
            short = True
        read = 0
        while waiting and not short and len(running) < server.batch:
            i = min(waiting, key=lambda i: (now[i], arrival[i], i))
            if sum(map(tokens, running)) + tokens(i) + server.block > limit:
                break
            waiting.remove(i)
            running.append(i)
            read += tokens(i)
            admitted[i] = clock if admitted[i] != admitted[i] else admitted[i]
        cached = sum(map(tokens, running))
        seconds = (
            server.base
            + server.per_request * len(running)
            + server.per_cached_token * cached
            + server.per_prompt_token * read
        )
        if clock + seconds > until:
            break
        clock += seconds
        iterations += 1
        peak = max(peak, cached)
        happen(clock)
        for i in list(running):
            generated[i] += 1
            first_token[i] = clock if first_token[i] != first_token[i] else first_token[i]
            if generated[i] == output[i]:
                finish[i] = clock
                running.remove(i)
    return SimpleNamespace(
        admitted=admitted,
        first_token=first_token,
        finish=finish,
        generated=generated,
        preemptions=preemptions,
        clock_end=clock if generated == output else until,
        iterations=iterations,
        kv_peak=peak,
    )
