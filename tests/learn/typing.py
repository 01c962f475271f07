"""What a learner types: right and wrong answers to a question of any form, as lines."""


def typed(question, right):
    """The lines of a right, or a wrong, answer."""
    fields, answer = question.fields, question.fields["answer"]
    match question.form:
        case "number":
            wrong = answer + 10 * fields.get("tolerance", 0) + abs(answer) + 1 if abs(answer) < 1e300 else 0
            return [f"{answer if right else wrong:.15g}"]
        case "shape":
            return [", ".join(map(str, answer if right else [*answer, 7]))]
        case "choice":
            return [str(answer if right else 1 + answer % len(fields["choices"]))]
        case "pairs":
            return [" ".join(map(str, answer if right else [*answer[1:], answer[0]]))]
        case "table":
            rows = answer if right else [[cell + 100 for cell in row] for row in answer]
            return [" ".join(f"{cell:.15g}" for cell in row) for row in rows]
        case "line":
            known = answer if isinstance(answer, list) else [answer]
            lines = range(1, 1 + len(fields["code"].strip("\n").splitlines()))
            return [str(known[0] if right else next(each for each in lines if each not in known))]
    raise AssertionError(f"a form without a typed answer: {question.form}")
