// (to come) walk
function walked() { return null; }
