#!/usr/bin/env bash
# The first 15 minutes, from a table of your own to a model that answers over HTTP. Run it in an empty folder:
#   pip install 'spreadout[export,serve]' && bash first_15_minutes.sh
set -euo pipefail
PYTHON=${PYTHON:-python3}

echo "1. A table: numbers in columns, the last one names the class. Put yours in its place."
"$PYTHON" - <<'EOF'
import csv
from sklearn.datasets import load_wine

wine = load_wine()
kinds = ["Barolo", "Grignolino", "Barbera"]
with open("wine.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow([*wine.feature_names, "kind"])
    rows.writerows([*x, kinds[y]] for x, y in zip(wine.data.tolist(), wine.target, strict=True))
EOF
head -n 2 wine.csv

echo "2. As arrays: x are the numbers, y the classes. Every class gets a client of its own, as none is named."
"$PYTHON" - <<'EOF'
import csv
import numpy as np

with open("wine.csv", newline="") as file:
    _, *rows = csv.reader(file)
kinds, y = np.unique([row[-1] for row in rows], return_inverse=True)
x = np.array([row[:-1] for row in rows], dtype=np.float32)
np.savez("wine.npz", x=x, y=y)
np.save("new.npy", x[:2])  # two to ask about later
print(len(x), "rows,", dict(enumerate(kinds.tolist())))
EOF

echo "3. A config. The rest is chosen from the data; what was chosen stands in runs/wine/config.toml."
cat > wine.toml <<'EOF'
name = "wine"
rounds = 40

[data]
source = "npz"
path = "wine.npz"

[method]
name = "fedaws"
EOF
spreadout data describe wine.toml

echo "4. Train: three clients, each with one kind of wine, none sees another's."
spreadout run wine.toml --out runs/wine

echo "5. Ask the model, on the command line."
spreadout predict runs/wine --input new.npy --top 2

echo "6. A page to look at: wine.html."
spreadout report runs/wine -o wine.html

echo "7. For other programs: the model as ONNX, with its classes and a card."
spreadout export runs/wine --to onnx --out wine-onnx
ls wine-onnx

echo "8. Over HTTP."
spreadout serve runs/wine --port 0 > serve.log 2>&1 &
SERVER=$!
trap 'kill $SERVER 2>/dev/null || true' EXIT
"$PYTHON" - <<'EOF'
import json, re, sys, time, urllib.request
import numpy as np

for _ in range(600):  # until it answers
    with open("serve.log") as file:
        said = file.read()
    try:
        if found := re.search(r"http://\S+", said):
            urllib.request.urlopen(f"{found[0]}/health")
            break
    except OSError:
        pass
    time.sleep(0.1)
else:
    sys.exit(f"the server does not answer: {said}")
body = json.dumps({"inputs": np.load("new.npy").tolist(), "top": 1}).encode()
asked = urllib.request.Request(f"{found[0]}/predict", body, {"Content-Type": "application/json"})
for (best,) in json.load(urllib.request.urlopen(asked))["results"]:
    print("over HTTP:", best)
EOF
echo "done"
